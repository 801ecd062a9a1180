// SPDX-License-Identifier: Apache-2.0
// A whole network of Zenoh sessions in one process and in its own time. Messages take a while, may
// be lost, and do not cross a partition. One seed makes one course of events.
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

/// A network whose sessions a test opens, parts and heals.
///
/// Owns:    the messages under way, and the declarations of the sessions. It outlives its sessions,
///          their handles and the questions that arrived.
/// Threads: any; one thread, always the same, advances the time. Only run_for() and
///          run_until_quiet() run callbacks, under no lock; callbacks may call everything but these
///          two.
class ZenohNetwork {
 public:
  using Time = std::chrono::microseconds;
  struct Manner {
    std::uint64_t seed = 1;
    Time least_delay{50};
    Time most_delay{500};
    /// One in so many of the reports of new and ended tokens is lost; 0: none.
    std::uint64_t loses_token_in = 0;
    /// One in so many puts is lost; 0: none.
    std::uint64_t loses_put_in = 0;
  };
  explicit ZenohNetwork(const Manner& manner) : manner_(manner), random_(manner.seed) {}
  ZenohNetwork(const ZenohNetwork&) = delete;
  ZenohNetwork& operator=(const ZenohNetwork&) = delete;

  /// Opens a session; its destructor is its death. A restart is a new session.
  [[nodiscard]] std::unique_ptr<detail::ZenohPort> open();

  /// Cuts these sessions off from all others from now on. They hear of no change of state.
  void part(std::span<const detail::ZenohPort* const> sessions);
  /// Ends the router: all sessions are down, and none reaches another.
  void stop_router();
  /// Brings all sessions up again; they reach each other.
  void heal();

  [[nodiscard]] Time now() const { return now_; }
  /// Counts the puts of sessions, whether anybody received them or not.
  [[nodiscard]] std::uint64_t put_count() const {
    const Locked locked(mutex_);
    return put_count_;
  }
  /// Without room, puts are dropped where they arrive.
  void set_room(bool has_room) {
    const Locked locked(mutex_);
    has_room_ = has_room;
  }
  /// Runs `what` after `delay`, as an action of the program.
  void after(Time delay, std::function<void()> what);
  void run_for(Time duration);
  /// Runs until nothing is under way, except timeouts of get() and query().
  void run_until_quiet();

 private:
  class Session;
  class Record;
  class Question;
  class Publisher;
  using Locked = std::lock_guard<std::recursive_mutex>;
  using Number = std::uint64_t;
  enum class Sort : std::uint8_t { token, watch, subscriber, publisher, answerer, state, request };
  /// A declaration or a request of a session.
  struct Entry {
    Sort sort = Sort::token;
    Number session = 0;
    std::optional<KeyExpression> key;  ///< of all sorts except `state`
    detail::ZenohPort::OnToken on_token;
    detail::ZenohPort::OnKey on_key;
    detail::ZenohPort::OnMessage on_message;
    detail::ZenohPort::OnDropped on_dropped;
    detail::ZenohPort::OnQuestion on_question;
    detail::ZenohPort::OnState on_state;
    detail::ZenohPort::OnEnd on_end;
    detail::ZenohPort::OnMatching on_matching;
    /// For a watch: tokens by their key, with their sessions.
    std::map<std::string, std::map<Number, Number>> seen;
    std::size_t awaited = 0;  ///< for a request: the answers that are missing
    detail::Matching matching = detail::Matching::nobody;  ///< the last report to a publisher
    detail::Audience audience = detail::Audience::other_sessions;  ///< for a publisher
  };
  enum class Waits : std::uint8_t { yes, no };  ///< whether run_until_quiet() waits for the event
  struct Event {
    Waits waits = Waits::yes;
    std::function<void()> what;
  };

  [[nodiscard]] Number add(Entry entry);
  /// Returns the entry if it is still declared; else null.
  [[nodiscard]] Entry* find(Number number);
  /// Runs `what`, a callback of the entry, if that is still declared. The callback may withdraw it.
  template <class F>
  void call(Number number, F&& what);
  /// Runs `what` without the lock, which step() holds.
  template <class F>
  void outside(F&& what);
  void withdraw(Number number);
  void close(Number session);
  [[nodiscard]] Number group_of(Number session, std::size_t grouping) const;
  [[nodiscard]] bool reach(Number a, Number b, std::size_t grouping) const;
  [[nodiscard]] bool reach(Number a, Number b) const { return reach(a, b, groupings_.size() - 1); }
  /// True if they reach each other in that grouping and in all later ones.
  [[nodiscard]] bool reach_since(Number a, Number b, std::size_t grouping) const;
  void regroup(std::map<Number, Number> groups);
  void set_state(detail::SessionState state);
  void put(Number from, detail::Audience audience, const KeyExpression& key,
           detail::ZenohMessage message);
  [[nodiscard]] detail::Matching matching_of(const Entry& publisher);
  void tell_publishers();

  void step();
  void schedule(Time when, Waits waits, std::function<void()> what);
  /// Runs `what` at `to` if nothing parts the two until then. It runs after earlier messages in the
  /// same order: that of `from`, or that of the router, which reports tokens.
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
  mutable std::recursive_mutex mutex_;  // an object that a callback drops may lock it again
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
  /// The group of each session, one map for each change. Sessions of one group reach each other. A
  /// session that is not named is in group 0.
  std::vector<std::map<Number, Number>> groupings_{1};
  std::map<std::pair<Number, Number>, Time> last_arrival_;
};

}  // namespace tendon::test
