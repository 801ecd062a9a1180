// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <vector>

#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// Bytes that arrived and were not read yet: the rest of an opened record, then records that were
/// not opened.
///
/// A stream is read into memory of the thread, from which records are opened into their place; what
/// is left in the end is kept. So a stream that waits for its next record has no memory.
///
/// Owns:    what is kept.
/// Threads: one at a time. Between fetch() and keep() the bytes lie in memory of the thread.
/// Errors:  none of its own.
/// Blocks:  never.
/// Cost:    an allocation and a copy for what is kept: less than a record, where the reader takes
///          what has arrived.
class SealedInput {
 public:
  /// What arrived behind a handshake.
  void begin(std::vector<std::byte> bytes) {
    kept_ = std::move(bytes);
    unopened_ = kept_;
  }

  /// Opened, and to be read first.
  [[nodiscard]] Bytes plain() const noexcept { return plain_; }
  void drop_plain(std::size_t bytes) noexcept { plain_ = plain_.subspan(bytes); }
  [[nodiscard]] MutableBytes unopened() const noexcept { return unopened_; }
  /// A record was opened, so many bytes long; `rest` lies in it.
  void note_opened(std::size_t bytes, Bytes rest) noexcept {
    unopened_ = unopened_.subspan(bytes);
    plain_ = rest;
  }

  /// Reads more behind what is not opened, about as much as the reader wants. Precondition: no
  /// plain() is left, and what is unopened is less than a record.
  [[nodiscard]] StreamIo fetch(ByteStream& below, std::size_t wanted_bytes);
  /// The last fetch() had room for more than there was: the descriptor says when more arrives.
  [[nodiscard]] bool is_drained() const noexcept { return is_drained_; }
  /// Any fetch() has read something.
  [[nodiscard]] bool has_fetched() const noexcept { return has_fetched_; }
  /// Before the thread leaves the stream: its memory is used for the next one.
  void keep();

 private:
  std::vector<std::byte> kept_;
  Bytes plain_;
  MutableBytes unopened_;
  bool is_lent_ = false;  // both lie in memory of the thread
  bool is_drained_ = false;
  bool has_fetched_ = false;
};

}  // namespace tendon::v0::detail
