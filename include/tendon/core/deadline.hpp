// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <limits>

namespace tendon {
inline namespace v0 {

/// The moment at which a call stops waiting. A duration converts to one: `pipe.recv(1s)`.
///
/// Example:
///   const Deadline deadline = 5s;  // from now, for all that follows
///   pipe.send(batch, deadline).value();
///   pipe.flush(earlier(deadline, Deadline(1s))).value();
///   Result<TensorDict> polled = pipe.recv(Deadline::now());  // `timeout` unless one is here
///   Result<TensorDict> waited = pipe.recv(Deadline::never());
///   if (deadline.has_passed()) std::cerr << "it took more than 5 s\n";
///
/// Owns:    nothing; a point on the steady clock [ns].
/// Threads: a value.
/// Errors:  none; it saturates instead of overflowing.
/// Blocks:  never.
/// Cost:    reading the clock once when made from a duration, none for zero and never().
///
/// Zero (or less) means: do only the work that needs no wait. Waiting for ever must be said:
/// `Deadline::never()`.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  template <class Rep, class Period>
  Deadline(std::chrono::duration<Rep, Period>
               from_now)  // NOLINT(google-explicit-constructor): `recv(1s)`
      : at_(after(from_now)) {}

  /// Never passes. No default means this.
  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }
  /// Has passed already: polls.
  [[nodiscard]] static Deadline now() { return Deadline(Clock::time_point::min()); }
  [[nodiscard]] static Deadline at(Clock::time_point when) { return Deadline(when); }

  [[nodiscard]] bool is_never() const { return at_ == Clock::time_point::max(); }
  /// True for a deadline that never waits, without reading the clock.
  [[nodiscard]] bool is_poll() const { return at_ == Clock::time_point::min(); }
  [[nodiscard]] bool has_passed() const {
    return !is_never() && (is_poll() || Clock::now() >= at_);
  }
  /// Time left, zero when it has passed, nanoseconds::max() when it never does.
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    if (is_never()) return std::chrono::nanoseconds::max();
    if (is_poll()) return std::chrono::nanoseconds::zero();
    const auto now = Clock::now();
    return now >= at_ ? std::chrono::nanoseconds::zero() : at_ - now;
  }
  [[nodiscard]] Clock::time_point time_point() const { return at_; }

  /// The earlier of the two.
  [[nodiscard]] friend Deadline earlier(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}

  template <class Rep, class Period>
  static Clock::time_point after(std::chrono::duration<Rep, Period> from_now) {
    // Compared as floating-point seconds: converting hours::max() to nanoseconds would overflow,
    // and a deadline that overflows lies in the past.
    using Seconds = std::chrono::duration<long double>;
    if (!(from_now > std::chrono::duration<Rep, Period>::zero())) return Clock::time_point::min();
    const auto now = Clock::now();
    const auto room = Clock::time_point::max() - now;
    if (Seconds(from_now) >= Seconds(room)) return Clock::time_point::max();
    return now + std::chrono::ceil<Clock::duration>(from_now);
  }

  Clock::time_point at_;
};

}  // namespace v0
}  // namespace tendon
