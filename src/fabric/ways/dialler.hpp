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

/// Tries again and again to reach what is wanted, with growing pauses, on threads of its own: to
/// dial is to wait. Each thing wanted is a target:
///
///   want() -> waiting -> running -> waiting   it failed: after a pause that grows up to 5 s
///                                -> settled   it succeeded
///             settled -> waiting              again(): after a pause, which begins anew only if
///                                             the success has lasted
///
/// Attempts for one peer run one after the other. A peer that was not reached pauses with all its
/// targets. A peer with a target that is due goes this way:
///
///   waiting  -> running    there is a place
///            -> knocking   there is none: does a connection to it stand?
///   knocking -> standing   yes: the next place is its own
///            -> waiting    no: a first try is over; a retry still waits for a place, to go other
///                          ways than to an address
///   standing -> running
///
/// Peers that the user named, and sockets of this user, need no place. Anybody can write an
/// announcement, so announced peers share kMostPlaces, and those among them that are not known to
/// stand share kMostUnproven. Every second turn goes to the newest peer that waits, so a crowd of
/// silent peers keeps no newcomer waiting.
///
/// Owns:    the attempts; a thread from start() on, at most kMostPlaces + kMostKnown when they are
///          needed; the knocks.
/// Threads: thread-safe. Attempts run without a lock, that of one key never twice at once.
/// Errors:  start(): resource_exhausted without a thread. Without a further one those that there
///          are do all, one after another, and it is logged. Those of attempts are theirs.
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

  /// With its first thread. Before all others.
  [[nodiscard]] Result<void> start() TENDON_EXCLUDES(mutex_);
  /// Replaces nothing: what is wanted already stays as it is, but for where its peer is.
  void want(Wanted wanted);
  /// What had succeeded has to be done again.
  void again(const std::string& key);
  /// No further attempt begins.
  void drop(const std::string& key);
  /// The same for all keys that begin with `prefix`; none of their attempts runs when it returns.
  void drop_all(std::string_view prefix);
  /// Drops everything, and ends the threads for good.
  void stop();

  static constexpr std::size_t kMostPlaces = 16;
  static constexpr std::size_t kMostUnproven = kMostPlaces / 2;
  /// Attempts by Whence::user and this_host at a time.
  static constexpr std::size_t kMostKnown = 16;
  /// Addresses that are knocked at together, and those among them of peers that failed before.
  static constexpr std::size_t kMostKnocks = 128;
  static constexpr std::size_t kMostKnocksAgain = kMostKnocks / 4;
  /// Addresses of one peer that failed before. A first try has one.
  static constexpr std::size_t kMostKnocksOfPeer = 8;
  static constexpr std::chrono::milliseconds kPatience{1000};
  /// The connection of a first try has this long to stand, where no place is free.
  static constexpr std::chrono::milliseconds kFirstPatience{300};

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer;
  struct Target;
  /// The time at which it is due, and its number, which decides between equal times.
  using Turn = std::pair<Clock::time_point, std::uint64_t>;
  using Turns = std::map<Turn, std::shared_ptr<Peer>>;
  /// Where peers wait.
  enum class Queue : std::uint8_t {
    known,     ///< they need no place
    first,     ///< first tries: they take a place, or are knocked at
    retry,     ///< the same, after a failure
    unproven,  ///< they need a place: no connection stood, or there is no address to knock at
    standing,
  };
  static constexpr std::size_t kQueues = 5;

  [[nodiscard]] Turns& turns(Queue queue) TENDON_REQUIRES(mutex_) {
    return queues_[static_cast<std::size_t>(queue)];
  }
  [[nodiscard]] static std::shared_ptr<Peer> due_in(const Turns& turns, Clock::time_point now);
  [[nodiscard]] static std::shared_ptr<Peer> newest_in(const Turns& turns, Clock::time_point now);
  /// Every second time the newest of them, else the first.
  [[nodiscard]] std::shared_ptr<Peer> alternate(Queue queue, Clock::time_point now)
      TENDON_REQUIRES(mutex_);

  [[nodiscard]] std::shared_ptr<Peer> peer_of(const Wanted& wanted) TENDON_REQUIRES(mutex_);
  void line_up(const std::shared_ptr<Target>& target, Clock::time_point due)
      TENDON_REQUIRES(mutex_);
  /// Puts a peer where it belongs, or forgets it when nothing is wanted of it.
  void place(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void take_out(Peer& peer) TENDON_REQUIRES(mutex_);
  void drop(const std::shared_ptr<Target>& target) TENDON_REQUIRES(mutex_);

  [[nodiscard]] bool has_place(Queue queue) const TENDON_REQUIRES(mutex_);
  /// The one whose turn it is, if there is a place for it now.
  [[nodiscard]] std::shared_ptr<Peer> next(Clock::time_point now) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Deadline next_due() TENDON_REQUIRES(mutex_);
  void knock(Clock::time_point now) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool may_knock(Queue queue) const TENDON_REQUIRES(mutex_);
  void knock_at(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void on_answer(Knocks::Number number, Knocks::Answer answer);
  /// Takes a peer out of those that are knocked at.
  [[nodiscard]] std::shared_ptr<Peer> knocked(Knocks::Number number) TENDON_REQUIRES(mutex_);
  /// Something may have become due.
  void rouse() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> add_thread() TENDON_REQUIRES(mutex_);
  /// For want of a thread or a descriptor: logged, a line a minute.
  void note_shortage(const Error& shortage) TENDON_REQUIRES(mutex_);
  void work();
  void run(const std::shared_ptr<Peer>& peer) TENDON_REQUIRES(mutex_);
  void pause(Peer& peer) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Clock::duration next_pause(std::optional<Backoff>& backoff) TENDON_REQUIRES(mutex_);

  const std::unique_ptr<Knocks> knocks_;
  const std::uint64_t seed_;  // of pauses
  LinePace pace_;
  Mutex mutex_;
  CondVar changed_;  // wakes a thread that has nothing to do
  CondVar ended_;    // an attempt
  std::map<std::string, std::shared_ptr<Target>, std::less<>> targets_ TENDON_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Peer>> peers_ TENDON_GUARDED_BY(mutex_);
  std::array<Turns, kQueues> queues_ TENDON_GUARDED_BY(mutex_);
  KnocksUnderWay<Peer> knocking_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Target>> running_ TENDON_GUARDED_BY(mutex_);  // dropped ones too
  std::vector<Thread> threads_ TENDON_GUARDED_BY(mutex_);
  /// Attempts that run, by the queue that their peers came from.
  std::array<std::size_t, kQueues> running_count_ TENDON_GUARDED_BY(mutex_){};
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t number_ TENDON_GUARDED_BY(mutex_) = 0;  // of turns, knocks and seeds
  /// Queues whose last turn was not that of the newest.
  std::array<bool, kQueues> newest_is_next_ TENDON_GUARDED_BY(mutex_){};
  bool ending_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
