// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>

namespace tendon {
inline namespace v0 {

/// Whether the holder of a storage may write to it.
enum class Access : std::uint8_t { read_only, read_write };

/// The owner of a storage's memory.
enum class Origin : std::uint8_t {
  here,       ///< this process
  peer_slot,  ///< a slot that a peer lent: sending it on needs a copy
};

/// A run of bytes together with the owner that keeps it alive: the heap, a mapped file, a slot that
/// a peer handed over, an array of another framework.
///
/// Example:
///   Storage fresh = Storage::allocate(1 << 20).value();
///   auto owner = std::make_shared<std::vector<std::byte>>(4096);
///   Storage theirs(owner, owner->data(), owner->size(), Access::read_write);  // keeps `owner`
///   Tensor x = Tensor::view(theirs, 0, DType::f32, {1024}).value();
///   std::cout << x.storage().size_bytes() << " bytes on " << x.device() << "\n";
///
/// Owns:    a share of the memory; the last share releases it (and returns a received slot).
/// Threads: a value; the threads that share the bytes synchronise them.
/// Errors:  allocate() returns resource_exhausted.
/// Blocks:  never.
/// Cost:    one shared count; copying copies no bytes.
class TENDON_API Storage {
 public:
  Storage() = default;
  /// Takes memory that `owner` keeps alive; `data` is an address of `device`, valid as long as
  /// `owner` lives. Each view and each part of this storage lies on that device too.
  Storage(std::shared_ptr<const void> owner, std::byte* data, std::uint64_t size_bytes,
          Access access, Origin origin = Origin::here, Device device = cpu())
      : owner_(std::move(owner)),
        data_(data),
        size_bytes_(size_bytes),
        device_index_(device.index),
        device_kind_(device.kind),
        access_(access),
        origin_(origin) {}

  /// Fresh private memory, aligned to 64 bytes, contents unspecified. Zero bytes are legal.
  [[nodiscard]] static Result<Storage> allocate(std::uint64_t size_bytes);

  /// The CPU must not read or write it if device() is another one.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }
  [[nodiscard]] Device device() const noexcept { return {device_kind_, device_index_}; }
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }
  /// Precondition: device() is cpu().
  [[nodiscard]] Bytes bytes() const noexcept { return {data_, size_bytes_}; }

  /// Bytes [offset_bytes, offset_bytes + size_bytes) of the same memory. Precondition: they lie
  /// inside.
  [[nodiscard]] Storage part(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
    return {owner_, data_ + offset_bytes, size_bytes, access_, origin_, device()};
  }
  /// The same memory for holders that may not write it.
  [[nodiscard]] Storage read_only() const {
    return {owner_, data_, size_bytes_, Access::read_only, origin_, device()};
  }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::int32_t device_index_ = 0;  // with its kind apart: five words in all
  DeviceKind device_kind_ = DeviceKind::cpu;
  Access access_ = Access::read_write;
  Origin origin_ = Origin::here;
};

}  // namespace v0
}  // namespace tendon
