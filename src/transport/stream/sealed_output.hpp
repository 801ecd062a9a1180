// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <tendon/core/bytes.hpp>

#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// Sealed records that wait to enter a stream.
///
/// Owns:    its memory, which grows to the largest room() and stays.
/// Threads: one at a time.
/// Errors:  none of its own.
/// Blocks:  never.
/// Cost:    no allocation once it has grown.
class SealedOutput {
 public:
  /// Returns room for `bytes` bytes behind the waiting ones, contents unspecified.
  [[nodiscard]] MutableBytes room(std::size_t bytes);
  /// Marks that many bytes of the room to be sent.
  void add(std::size_t bytes) noexcept { end_ += bytes; }
  void append(Bytes bytes);
  /// Hands over what `below` takes, and returns the outcome: `moved`, `later`, or `lost` with its
  /// error.
  [[nodiscard]] StreamIo flush(ByteStream& below);

  /// True if the kernel has all that was added.
  [[nodiscard]] bool is_sent() const noexcept { return bytes_left() == 0; }
  [[nodiscard]] std::size_t bytes_left() const noexcept { return end_ - begin_ + inside_below_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t inside_below_ = 0;  // taken by the stream, and not with the kernel
};

}  // namespace tendon::v0::detail
