// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon {
inline namespace v0 {

/// May the holder of a storage write to it?
enum class Access : std::uint8_t { read_only, read_write };

/// Whose memory a storage is.
enum class Origin : std::uint8_t {
  here,       ///< this process's own
  peer_slot,  ///< a slot that a peer lent: sending it on needs a copy
};

/// A run of bytes together with whatever keeps it alive: the heap, a mapped file, a slot that a
/// peer handed over, an array of another framework.
///
/// Example:
///   Storage fresh = Storage::allocate(1 << 20).value();
///   auto owner = std::make_shared<std::vector<std::byte>>(4096);
///   Storage theirs(owner, owner->data(), owner->size(), Access::read_write);  // keeps `owner`
///   Tensor x = Tensor::view(theirs, 0, DType::f32, {1024}).value();
///   std::cout << x.storage().size_bytes() << " bytes\n";
///
/// Owns:    a share of the memory; the last share releases it (and gives a received slot back).
/// Threads: a value; the threads that share the bytes synchronise them.
/// Errors:  allocate() returns resource_exhausted.
/// Blocks:  never.
/// Cost:    one shared count; copying copies no bytes.
class TENDON_API Storage {
 public:
  Storage() = default;
  /// Memory kept alive by `owner`; `data` stays valid as long as it does.
  Storage(std::shared_ptr<const void> owner, std::byte* data, std::uint64_t size_bytes,
          Access access, Origin origin = Origin::here)
      : owner_(std::move(owner)),
        data_(data),
        size_bytes_(size_bytes),
        access_(access),
        origin_(origin) {}

  /// Fresh private memory, aligned to 64 bytes, contents unspecified. Zero bytes are legal.
  [[nodiscard]] static Result<Storage> allocate(std::uint64_t size_bytes);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }
  [[nodiscard]] Bytes bytes() const noexcept { return {data_, size_bytes_}; }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  Access access_ = Access::read_write;
  Origin origin_ = Origin::here;
};

}  // namespace v0
}  // namespace tendon
