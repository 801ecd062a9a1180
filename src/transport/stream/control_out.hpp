// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "transport/message.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// The sending half of the control lane: descriptors and inline bodies, in the order of the calls.
/// Bytes that the stream does not take at once wait here.
///
/// Owns:    a buffer; not the stream.
/// Threads: thread-safe; its lock is the innermost one.
/// Errors:  failure() holds the errno of the call that failed; everything after that is dropped.
/// Blocks:  never.
/// Cost:    one write a message while the stream has room.
class ControlOut {
 public:
  explicit ControlOut(ByteStream& stream) : stream_(&stream) {}

  /// Takes a message with at most kMaxInlineBytes of inline body. False if too much waits already,
  /// or the stream has failed: a message that is known to be lost must not count as sent.
  [[nodiscard]] bool try_send(const SendOp& op);
  /// Takes a message no matter how much waits: small words that must not get lost.
  void post(const Descriptor& descriptor, Bytes inline_body = {});
  /// Writes bytes of the handshake, before every message.
  void write_first(Bytes bytes) {
    const Lock lock(mutex_);
    write(bytes);
  }
  /// Takes the last message. Messages that any thread hands over later are dropped.
  void post_last(const Descriptor& descriptor);
  /// Hands waiting bytes to the stream, as far as it takes them. Returns whether anything moved.
  bool flush();

  /// Bytes that wait here and inside the stream.
  [[nodiscard]] std::size_t waiting_bytes() const noexcept {
    return waiting_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] int failure() const noexcept { return failure_.load(std::memory_order_relaxed); }
  /// Forgets the stream, which is about to be destroyed.
  void stop();

  /// The limit of waiting bytes; beyond it senders wait as well.
  static constexpr std::size_t kMaxWaitingBytes = 256 * 1024;

 private:
  void write(Bytes message) TENDON_REQUIRES(mutex_);
  void write_waiting() TENDON_REQUIRES(mutex_);
  /// Returns how many of the bytes the stream takes now. After a failure it drops them all.
  [[nodiscard]] std::size_t hand_over(Bytes bytes) TENDON_REQUIRES(mutex_);

  Mutex mutex_;
  ByteStream* stream_ TENDON_GUARDED_BY(mutex_);            // null after stop()
  std::size_t inside_bytes_ TENDON_GUARDED_BY(mutex_) = 0;  // in the stream
  std::vector<std::byte> waiting_ TENDON_GUARDED_BY(mutex_);
  std::size_t written_ TENDON_GUARDED_BY(mutex_) = 0;  // of waiting_
  bool said_last_ TENDON_GUARDED_BY(mutex_) = false;
  std::atomic<std::size_t> waiting_bytes_{0};
  std::atomic<int> failure_{0};
};

}  // namespace tendon::v0::detail
