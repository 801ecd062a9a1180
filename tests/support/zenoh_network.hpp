// SPDX-License-Identifier: Apache-2.0
// A whole network of Zenoh sessions in one process and in its own time: what is said takes a while,
// may be lost, and does not cross a partition. One seed, one course of events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/zenoh/zenoh_port.hpp"
#include "support/key_index.hpp"

namespace tendon::test {

/// Owns:    what is under way, and what the sessions declared. It outlives its sessions, what they
///          returned and the questions that came.
/// Threads: any; time is one thread's, always the same. Only run_for() and run_until_quiet() run
///          callbacks, under no lock; they may call all but these.
class ZenohNetwork {
 public:
  using Time = std::chrono::microseconds;
  struct Manner {
    std::uint64_t seed = 1;
    Time least_delay{50};
    Time most_delay{500};
    /// One in so many of the words "a token came" and "a token went" is lost; 0: none.
    std::uint64_t loses_token_in = 0;
    /// The same of puts.
    std::uint64_t loses_put_in = 0;
  };
  explicit ZenohNetwork(const Manner& manner) : manner_(manner), random_(manner.seed) {}
  ZenohNetwork(const ZenohNetwork&) = delete;
  ZenohNetwork& operator=(const ZenohNetwork&) = delete;

  /// A new session; its destructor is its death. A restart is a new one.
  [[nodiscard]] std::unique_ptr<detail::ZenohPort> open();

  /// From now on these reach each other and nobody else. They hear of no change of state.
  void part(std::span<const detail::ZenohPort* const> sessions);
  /// The router dies: all are down, and nobody reaches anybody.
  void stop_router();
  /// All are up, and reach each other.
  void heal();

  [[nodiscard]] Time now() const { return now_; }
  /// Messages that sessions put, one way or the other, whether anybody got them or not.
  [[nodiscard]] std::uint64_t put_count() const {
    const Locked locked(mutex_);
    return put_count_;
  }
  /// While there is none, what is put is dropped where it arrives.
  void set_room(bool has_room) {
    const Locked locked(mutex_);
    has_room_ = has_room;
  }
  /// Runs `what` after `delay`, as if it were a program's own doing.
  void after(Time delay, std::function<void()> what);
  void run_for(Time duration);
  /// Until nothing is under way, timeouts of get() and query() apart.
  void run_until_quiet();

 private:
  class Session;
  class Record;
  class Question;
  class Publisher;
  using Locked = std::lock_guard<std::recursive_mutex>;
  using Number = std::uint64_t;
  enum class Sort : std::uint8_t { token, watch, subscriber, publisher, answerer, state, request };
  /// What a session declared or asked.
  struct Entry {
    Sort sort = Sort::token;
    Number session = 0;
    std::optional<KeyExpression> key;  ///< of all but those of the state
    detail::ZenohPort::OnToken on_token;
    detail::ZenohPort::OnKey on_key;
    detail::ZenohPort::OnMessage on_message;
    detail::ZenohPort::OnDropped on_dropped;
    detail::ZenohPort::OnQuestion on_question;
    detail::ZenohPort::OnState on_state;
    detail::ZenohPort::OnEnd on_end;
    detail::ZenohPort::OnMatching on_matching;
    /// By a watch: tokens by their key, with their sessions.
    std::map<std::string, std::map<Number, Number>> seen;
    std::size_t awaited = 0;  ///< by a request: words that somebody is done
    detail::Matching matching = detail::Matching::nobody;          ///< what a publisher was told
    detail::Audience audience = detail::Audience::other_sessions;  ///< of a publisher
  };
  enum class Waits : std::uint8_t { yes, no };  ///< for it, does run_until_quiet()?
  struct Event {
    Waits waits = Waits::yes;
    std::function<void()> what;
  };

  [[nodiscard]] Number add(Entry entry);
  /// The entry, if it is still declared.
  [[nodiscard]] Entry* find(Number number);
  /// `what` is a callback of it, if it is still declared; it may withdraw itself.
  template <class F>
  void call(Number number, F&& what);
  /// Runs `what` without the lock, which step() has.
  template <class F>
  void outside(F&& what);
  void withdraw(Number number);
  void close(Number session);
  [[nodiscard]] Number group_of(Number session, std::size_t grouping) const;
  [[nodiscard]] bool reach(Number a, Number b, std::size_t grouping) const;
  [[nodiscard]] bool reach(Number a, Number b) const { return reach(a, b, groupings_.size() - 1); }
  /// In that grouping and in all since.
  [[nodiscard]] bool reach_since(Number a, Number b, std::size_t grouping) const;
  void regroup(std::map<Number, Number> groups);
  void set_state(detail::SessionState state);
  void put(Number from, detail::Audience audience, const KeyExpression& key,
           detail::ZenohMessage message);
  [[nodiscard]] detail::Matching matching_of(const Entry& publisher);
  void tell_publishers();

  void step();
  void schedule(Time when, Waits waits, std::function<void()> what);
  /// `what` happens at `to` if nothing parts the two until then, and after what was sent before in
  /// the same order: that of `from`, or of the router that tells of tokens.
  enum class Order : std::uint8_t { of_sender, of_router };
  void send(Number from, Number to, Order order, std::function<void()> what);
  void tell(Number watch, Number token, const Entry& entry, detail::TokenChange change);
  void tell_watches(Number token, const Entry& entry, detail::TokenChange change);
  void tell_what_is_cut_off(Number watch);
  void believe(Number watch, Number token, Number session, const std::string& key,
               detail::TokenChange change);
  void look_up_tokens(Number request, std::size_t asked_in);
  void finish_one(Number request);
  void end(Number request, detail::Ending ending);
  [[nodiscard]] bool loses(std::uint64_t one_in) { return one_in != 0 && random_() % one_in == 0; }

  const Manner manner_;
  mutable std::recursive_mutex mutex_;  // what a callback keeps may go while it is held
  std::mt19937_64 random_;
  std::uint64_t put_count_ = 0;
  bool has_room_ = true;
  Time now_{0};
  Number last_number_ = 0;
  std::map<std::pair<Time, Number>, Event> events_;
  std::size_t awaited_events_ = 0;
  std::map<Number, std::shared_ptr<Entry>> entries_;
  std::map<Sort, std::set<Number>> numbers_of_;
  KeyIndex tokens_;
  KeyIndex watches_;
  detail::SessionState router_ = detail::SessionState::up;
  std::set<Number> sessions_;
  /// Which group each session was in, one map for each time that this changed: sessions of one
  /// group reach each other. One that is not named is in group 0.
  std::vector<std::map<Number, Number>> groupings_{1};
  std::map<std::pair<Number, Number>, Time> last_arrival_;
};

}  // namespace tendon::test
