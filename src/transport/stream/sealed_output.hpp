// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <tendon/core/bytes.hpp>

#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// Sealed records on their way into a stream.
///
/// Owns:    its memory, which grows to what is asked for and stays.
/// Threads: one at a time.
/// Errors:  none of its own.
/// Blocks:  never.
/// Cost:    no allocation once it has grown.
class SealedOutput {
 public:
  /// Room for that much behind what is there, contents unspecified.
  [[nodiscard]] MutableBytes room(std::size_t bytes);
  /// So many bytes of the room are to be sent.
  void add(std::size_t bytes) noexcept { end_ += bytes; }
  void append(Bytes bytes);
  /// Hands over what `below` takes, and says how that ended: `moved` or `later`, or `lost` with its
  /// error.
  [[nodiscard]] StreamIo flush(ByteStream& below);

  /// All that was added is with the kernel.
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
