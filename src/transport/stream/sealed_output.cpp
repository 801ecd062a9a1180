// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/sealed_output.hpp"

#include <cstring>

namespace tendon::v0::detail {

MutableBytes SealedOutput::room(std::size_t bytes) {
  const std::size_t held = end_ - begin_;
  if (held == 0) begin_ = end_ = 0;
  if (capacity_ - end_ < bytes) {
    auto larger = std::make_unique_for_overwrite<std::byte[]>(held + bytes);
    if (held != 0) std::memcpy(larger.get(), memory_.get() + begin_, held);
    memory_ = std::move(larger);
    capacity_ = held + bytes;
    begin_ = 0;
    end_ = held;
  }
  return {memory_.get() + end_, bytes};
}

void SealedOutput::append(Bytes bytes) {
  if (bytes.empty()) return;
  std::memcpy(room(bytes.size()).data(), bytes.data(), bytes.size());
  add(bytes.size());
}

StreamIo SealedOutput::flush(ByteStream& below) {
  while (!is_sent()) {
    const iovec piece{memory_.get() + begin_, end_ - begin_};
    const std::size_t left_before = bytes_left();
    const StreamIo io = below.write({&piece, piece.iov_len == 0 ? 0u : 1u});
    if (io.state != StreamIo::State::moved) return io;
    inside_below_ = io.inside_bytes;
    begin_ += io.bytes;
    if (bytes_left() >= left_before) return {};
  }
  return StreamIo::moved(0);
}

}  // namespace tendon::v0::detail
