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
/// A stream is read into memory of the thread, and records are opened from there into their place.
/// The bytes that are left in the end are kept. A stream that waits for its next record thus has no
/// memory.
///
/// Owns:    the kept bytes.
/// Threads: one at a time. Between fetch() and keep() the bytes lie in memory of the thread.
/// Errors:  none of its own.
/// Blocks:  never.
/// Cost:    an allocation and a copy for the kept bytes: less than a record, if the reader takes
///          all that has arrived.
class SealedInput {
 public:
  /// Takes the bytes that arrived behind a handshake.
  void begin(std::vector<std::byte> bytes) {
    kept_ = std::move(bytes);
    unopened_ = kept_;
  }

  /// The opened bytes, which are read first.
  [[nodiscard]] Bytes plain() const noexcept { return plain_; }
  void drop_plain(std::size_t bytes) noexcept { plain_ = plain_.subspan(bytes); }
  [[nodiscard]] MutableBytes unopened() const noexcept { return unopened_; }
  /// Notes that a record of `bytes` bytes was opened; `rest` lies in it.
  void note_opened(std::size_t bytes, Bytes rest) noexcept {
    unopened_ = unopened_.subspan(bytes);
    plain_ = rest;
  }

  /// Reads more behind the unopened bytes, about as much as the reader wants. Precondition: plain()
  /// is empty, and less than a record is unopened.
  [[nodiscard]] StreamIo fetch(ByteStream& below, std::size_t wanted_bytes);
  /// True if the last fetch() had room for more than there was: the descriptor is ready when more
  /// arrives.
  [[nodiscard]] bool is_drained() const noexcept { return is_drained_; }
  /// True if any fetch() has read something.
  [[nodiscard]] bool has_fetched() const noexcept { return has_fetched_; }
  /// Keeps the bytes before the thread leaves the stream: its memory serves the next stream.
  void keep();

 private:
  std::vector<std::byte> kept_;
  Bytes plain_;
  MutableBytes unopened_;
  bool is_lent_ = false;  // plain_ and unopened_ lie in memory of the thread
  bool is_drained_ = false;
  bool has_fetched_ = false;
};

}  // namespace tendon::v0::detail
