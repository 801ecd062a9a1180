// SPDX-License-Identifier: Apache-2.0
// A ByteStream in memory: the kernel between its ends only reports readiness. It moves as few bytes
// as a test likes, stalls, keeps bytes inside, and breaks at any byte.
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

/// A queue of bytes.
class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const { return bytes_.size() - begin_; }
  void put(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  /// Returns at most `most` bytes from its front.
  [[nodiscard]] Bytes front(std::size_t most) const;
  void drop(std::size_t count);

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

class MemoryStream final : public detail::ByteStream {
 public:
  struct Manner {
    std::size_t most_read = 1 << 20;      ///< of one read
    std::size_t most_written = 1 << 20;   ///< of one write
    std::size_t room_bytes = 256 * 1024;  ///< under way in one direction
    std::size_t stalls_every = 0;         ///< one call in so many does nothing, although it could
    /// Not zero: as in TLS, whole records of at most so many bytes are taken and received. Bytes
    /// that the wire has no room for, or that a read left of a record, stay inside.
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

  /// Breaks the connection in both directions after the next `bytes` bytes that this end writes.
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
