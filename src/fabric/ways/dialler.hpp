// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "core/thread.hpp"
#include "fabric/ways/dial_target.hpp"
#include "fabric/ways/knocks.hpp"
#include "fabric/ways/knocks_under_way.hpp"
#include "observe/line_pace.hpp"
#include "runtime/backoff.hpp"

namespace tendon::v0::detail {

/// Tries to reach peers again and again, with growing pauses, on threads of its own, as each dial
/// waits. Each thing that is wanted is a target:
///
///   want() -> waiting -> running -> waiting   it failed: after a pause that grows up to 5 s
///                                -> settled   it succeeded
///             settled -> waiting              again(): after a pause, which begins anew only if
///                                             the success has lasted
///
/// Attempts for one peer run one after the other. A peer that was not reached pauses with all its
/// targets. A peer with a due target changes its state like this:
///
///   waiting  -> running    there is a place
///            -> knocking   there is none: a knock asks whether a connection stands
///   knocking -> standing   yes: the next place is its own
///            -> waiting    no: a first try is over; a retry still waits for a place, to try other
///                          ways than an address
///   standing -> running
///
/// Peers that the user named, and sockets of this user, need no place. Anybody can write an
/// announcement, so announced peers share kMostPlaces places. Peers without a proved connection
/// share kMostUnproven of these. Every second turn belongs to the newest peer that waits, so a
/// crowd of silent peers cannot keep newcomers waiting.
///
/// Owns:    the attempts; a thread from start() on, at most kMostPlaces + kMostKnown when they are
///          needed; the knocks.
/// Threads: thread-safe. Attempts run without a lock; one key has at most one at a time.
/// Errors:  start(): resource_exhausted without a thread. If a further thread cannot start, the
///          existing ones do its work in turn, and it is logged. Attempts handle their own errors.
/// Blocks:  drop_all(), stop() and the destructor, for an attempt that runs: kPatience at most.
/// Cost:    each attempt takes some steps in ordered trees.
class Dialler {
 public:
  using Whence = DialTarget::Whence;
  using Dial = DialTarget::Dial;
  using Outcome = DialTarget::Outcome;
  using Attempt = DialTarget::Attempt;
  using Haste = DialTarget::Haste;
  using Wanted = DialTarget;

  explicit Dialler(std::unique_ptr<Knocks> knocks = make_knocks());
  Dialler(const Dialler&) = delete;
  Dialler& operator=(const Dialler&) = delete;
  ~Dialler() { stop(); }

  /// Starts the first thread. Call it before all others.
  [[nodiscard]] Result<void> start() TENDON_EXCLUDES(mutex_);
  /// Adds a target. If its key is known already, only the addresses of its peer are replaced.
  void want(Wanted wanted);
  /// Tries a target again that had succeeded.
  void again(const std::string& key);
  /// Drops a target: no further attempt begins.
  void drop(const std::string& key);
  /// Drops all keys that begin with `prefix`; none of their attempts runs when the call returns.
  void drop_all(std::string_view prefix);
  /// Drops everything, and ends the threads for good.
  void stop();

  static constexpr std::size_t kMostPlaces = 16;
  static constexpr std::size_t kMostUnproven = kMostPlaces / 2;
  /// The most attempts by Whence::user and this_host at a time.
  static constexpr std::size_t kMostKnown = 16;
  /// The most addresses that are knocked at together, and the most of these that belong to peers
  /// that failed before.
  static constexpr std::size_t kMostKnocks = 128;
  static constexpr std::size_t kMostKnocksAgain = kMostKnocks / 4;
  /// The most addresses of a peer that failed before. A first try has one.
  static constexpr std::size_t kMostKnocksOfPeer = 8;
  static constexpr std::chrono::milliseconds kPatience{1000};
  /// The time that the connection of a first try has to stand, if no place is free.
  static constexpr std::chrono::milliseconds kFirstPatience{300};

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer;
  struct Target;
  /// The time at which it is due, and a number, which decides between equal times.
  using Turn = std::pair<Clock::time_point, std::uint64_t>;
  using Turns = std::map<Turn, std::shared_ptr<Peer>>;
  /// The queues in which peers wait.
  enum class Queue : std::uint8_t {
    known,     ///< they need no place
    first,     ///< first tries: they take a place, or are knocked at
    retry,     ///< tries after a failure, which do the same
    unproven,  ///< they need a place: no connection stood, or there is no address to knock at
    standing,
  };
  static constexpr std::size_t kQueues = 5;

  [[nodiscard]] Turns& turns(Queue queue) TENDON_REQUIRES(mutex_) {
    return queues_[static_cast<std::size_t>(queue)];
  }
  [[nodiscard]] static std::shared_ptr<Peer> due_in(const Turns& turns, Clock::time_point now);
  [[nodiscard]] static std::shared_ptr<Peer> newest_in(const Turns& turns, Clock::time_point now);
  /// Returns every second time the newest due peer of the queue, else the first.
  [[nodiscard]] std::shared_ptr<Peer> alternate(Queue queue, Clock::time_point now)
      TENDON_REQUIRES(mutex_);

  [[nodiscard]] std::shared_ptr<Peer> peer_of(const Wanted& wanted) TENDON_REQUIRES(mutex_);
  void line_up(const std::shared_ptr<Target>& target, Clock::time_point due)
      TENDON_REQUIRES(mutex_);
  /// Puts a peer into its queue, or forgets it if it has no targets.
  void place(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void take_out(Peer& peer) TENDON_REQUIRES(mutex_);
  void drop(const std::shared_ptr<Target>& target) TENDON_REQUIRES(mutex_);

  [[nodiscard]] bool has_place(Queue queue) const TENDON_REQUIRES(mutex_);
  /// Returns the peer whose turn it is, if there is a place for it now.
  [[nodiscard]] std::shared_ptr<Peer> next(Clock::time_point now) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Deadline next_due() TENDON_REQUIRES(mutex_);
  void knock(Clock::time_point now) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool may_knock(Queue queue) const TENDON_REQUIRES(mutex_);
  void knock_at(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void on_answer(Knocks::Number number, Knocks::Answer answer);
  /// Ends the knock of this number and returns its peer.
  [[nodiscard]] std::shared_ptr<Peer> knocked(Knocks::Number number) TENDON_REQUIRES(mutex_);
  /// Wakes or adds a thread, as something may be due.
  void rouse() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> add_thread() TENDON_REQUIRES(mutex_);
  /// Logs a lack of threads or descriptors, one line a minute.
  void note_shortage(const Error& shortage) TENDON_REQUIRES(mutex_);
  void work();
  void run(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void pause(Peer& peer) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Clock::duration next_pause(std::optional<Backoff>& backoff) TENDON_REQUIRES(mutex_);

  const std::unique_ptr<Knocks> knocks_;
  const std::uint64_t seed_;  // for pauses
  LinePace pace_;
  Mutex mutex_;
  CondVar changed_;  // wakes a thread that has nothing to do
  CondVar ended_;    // signalled when an attempt ends
  std::map<std::string, std::shared_ptr<Target>, std::less<>> targets_ TENDON_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Peer>> peers_ TENDON_GUARDED_BY(mutex_);
  std::array<Turns, kQueues> queues_ TENDON_GUARDED_BY(mutex_);
  KnocksUnderWay<Peer> knocking_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Target>> running_ TENDON_GUARDED_BY(mutex_);  // with dropped ones
  std::vector<Thread> threads_ TENDON_GUARDED_BY(mutex_);
  /// The number of running attempts, by the queue of their peers.
  std::array<std::size_t, kQueues> running_count_ TENDON_GUARDED_BY(mutex_){};
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t number_ TENDON_GUARDED_BY(mutex_) = 0;  // for turns, knocks and seeds
  /// True for queues whose last turn was that of the newest peer.
  std::array<bool, kQueues> newest_is_next_ TENDON_GUARDED_BY(mutex_){};
  bool ending_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
