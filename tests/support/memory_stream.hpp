// SPDX-License-Identifier: Apache-2.0
// A ByteStream with no kernel between its ends but for readiness: it moves as few bytes as a test
// likes, stalls, keeps bytes inside, and breaks at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <utility>
#include <vector>

#include "core/fd.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::test {

/// Bytes in order.
class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const { return bytes_.size() - begin_; }
  void put(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  /// The first of them.
  [[nodiscard]] Bytes front(std::size_t most) const;
  void drop(std::size_t count);

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

class MemoryStream final : public detail::ByteStream {
 public:
  struct Manner {
    std::size_t most_read = 1 << 20;      ///< by one read
    std::size_t most_written = 1 << 20;   ///< by one write
    std::size_t room_bytes = 256 * 1024;  ///< under way in one direction
    std::size_t stalls_every = 0;         ///< each so-manieth call does nothing, though it could
    /// Not zero: as TLS, whole records of at most so many bytes are taken and received. What the
    /// wire has no room for and what was not read of a record stays inside.
    std::size_t record_bytes = 0;
  };
  using Pair = std::pair<std::unique_ptr<MemoryStream>, std::unique_ptr<MemoryStream>>;
  [[nodiscard]] static Pair make_pair(const Manner& manner);
  ~MemoryStream() override;

  [[nodiscard]] detail::StreamIo read(std::span<const iovec> pieces) noexcept override;
  [[nodiscard]] detail::StreamIo write(std::span<const iovec> pieces) noexcept override;
  void end_output() noexcept override;
  [[nodiscard]] int fd() const noexcept override;
  [[nodiscard]] const detail::StreamPeer& peer() const noexcept override { return peer_; }

  /// The connection breaks, both ways, behind the next so many bytes that this end writes.
  void break_after(std::uint64_t bytes);

 private:
  class Signal;
  struct Wire;
  MemoryStream(std::shared_ptr<Wire> in, std::shared_ptr<Wire> out, const Manner& manner);
  [[nodiscard]] bool stalls(std::size_t& calls) const;
  void push_out();

  const std::shared_ptr<Wire> in_;
  const std::shared_ptr<Wire> out_;
  const Manner manner_;
  const detail::StreamPeer peer_;
  // Used by the thread that reads.
  ByteQueue received_;
  std::size_t reads_ = 0;
  // Used by the thread that writes.
  ByteQueue taken_;
  std::size_t writes_ = 0;
};

}  // namespace tendon::test
