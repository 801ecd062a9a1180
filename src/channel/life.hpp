// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// How far the two directions of a channel have come. They only go on.
///
///   sending     finish()   close()   end()
///   open        finished   closed    ended
///   finished    -          -         -        the first reason stays
///   closed      -          -         -        the peer closed its end in order
///   ended       -          -         -
///
///   receiving   end_came()  end_read()  fail()
///   open        ending      over        failed
///   ending      -           over        failing   messages may stand before the end in the inbox
///   failing     -           over        -         the end is there although the channel failed
///   failed      -           over        -         the first reason stays
///   over        -           -           -
///
/// Owns:    the reasons.
/// Threads: sending: any; receiving: the link's receive lock is held.
/// Errors:  none.
/// Blocks:  never for long.
/// Cost:    may_send(): one load.
class ChannelLife {
 public:
  enum class Sending : std::uint8_t { open, finished, closed, ended };
  enum class Receiving : std::uint8_t { open, ending, failing, failed, over };

  // Sending
  [[nodiscard]] bool may_send() const noexcept { return sending() == Sending::open; }
  [[nodiscard]] Sending sending() const noexcept {
    return sending_.load(std::memory_order_acquire);
  }
  /// This side has said its end; `why` is what later sends return.
  void finish(Error why) { leave(Sending::finished, std::move(why)); }
  /// The peer said the end of both directions: it takes nothing more.
  void close(Error why) { leave(Sending::closed, std::move(why)); }
  void end(Error why) { leave(Sending::ended, std::move(why)); }
  /// Precondition: not open.
  [[nodiscard]] Error send_error() const {
    const Lock lock(mutex_);
    return *send_error_;
  }

  // Receiving
  [[nodiscard]] Receiving receiving() const noexcept { return receiving_; }
  void end_came() noexcept {
    if (receiving_ == Receiving::open) receiving_ = Receiving::ending;
  }
  void end_read() noexcept { receiving_ = Receiving::over; }
  void fail(Error why) {
    if (receiving_ == Receiving::open) receiving_ = Receiving::failed;
    if (receiving_ == Receiving::ending) receiving_ = Receiving::failing;
    if (!receive_error_) receive_error_ = std::move(why);
  }
  /// Its reason counts once it is read, behind the messages that came before it: see
  /// read_peer_error().
  void peer_error_came(Error said) { peer_error_ = std::move(said); }
  void read_peer_error() {
    if (peer_error_) fail(*peer_error_);
  }
  /// Nothing that comes now is taken in.
  [[nodiscard]] bool has_failed() const noexcept { return receive_error_.has_value(); }
  /// Everything that the peer sent is here.
  [[nodiscard]] bool has_end() const noexcept {
    return receiving_ == Receiving::ending || receiving_ == Receiving::failing ||
           receiving_ == Receiving::over;
  }
  /// With an empty inbox: will no message come any more?
  [[nodiscard]] bool is_over() const noexcept {
    return receiving_ == Receiving::over || receive_error_.has_value();
  }
  /// Why; nothing when the end was read, which is the orderly one.
  [[nodiscard]] const Error* receive_error() const noexcept {
    return receiving_ == Receiving::over || !receive_error_ ? nullptr : &*receive_error_;
  }

 private:
  void leave(Sending next, Error why) {
    const Lock lock(mutex_);
    if (send_error_) return;
    send_error_ = std::move(why);
    sending_.store(next, std::memory_order_release);
  }

  mutable Mutex mutex_;
  std::atomic<Sending> sending_{Sending::open};  // changed under the lock
  std::optional<Error> send_error_ TENDON_GUARDED_BY(mutex_);
  Receiving receiving_ = Receiving::open;
  std::optional<Error> receive_error_;
  std::optional<Error> peer_error_;
};

}  // namespace tendon::v0::detail
