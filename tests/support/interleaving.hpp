// SPDX-License-Identifier: Apache-2.0
// Runs small concurrent programs under every possible schedule.
//
// A thread of such a program touches shared memory through `CheckedMemory` only, so its state
// follows from the values it read. To take one step, the checker decides the outcome of the
// thread's next access and appends it to the thread's log. It then runs the thread again from its
// beginning up to the next access, with answers from the log. No stacks are switched, so sanitizers
// see plain code. A state is plain data, so states that two schedules reach are explored once, and
// the number of schedules is still exact.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/checked_memory.hpp"

namespace tendon::test {

enum class Order {
  sequential,   ///< every access is visible to all at once
  store_buffer  ///< x86: stores wait in a queue of their thread, loads and system calls do not
};

/// `Ghost` is the data that one thread shows to the invariants; each run of its body fills it anew.
template <class Ghost>
class Interleavings {
 public:
  using Body = std::function<void(Ghost&)>;
  struct Thread {
    std::string name;
    Body body;
    /// If set, the thread is a process that may die before any access. At some later moment after
    /// its end, in either case, this word becomes 1.
    const CheckedMemory::Word* proof_of_end = nullptr;
  };
  struct View {
    const Ghost& ghost;
    bool dead;
    bool finished;
  };
  /// Returns the fault, or nothing.
  using Invariant = std::function<std::optional<std::string>(const std::vector<View>&)>;

  struct Outcome {
    std::uint64_t schedules = 0;  ///< complete ones; exact below 2^64 - 1, which means "at least"
    std::uint64_t states = 0;
    std::string violation;  ///< the fault and the schedule that led to it
  };

  Interleavings(Order order, std::vector<Thread> threads, Invariant invariant)
      : order_(order), threads_(std::move(threads)), invariant_(std::move(invariant)) {}

  Outcome explore() {
    State start;
    for (std::size_t t = 0; t < threads_.size(); ++t) start.threads.push_back({new_run(t, {}), {}});
    outcome_ = {};
    outcome_.schedules = count_from(start);
    outcome_.states = seen_.size();
    return outcome_;
  }

 private:
  using Kind = Access::Kind;
  using Cell = std::uint32_t;  // index of a word of shared memory
  /// One thread at one point, which exactly these outcomes led to.
  struct Run {
    std::vector<std::uint64_t> log;
    Access next;
    Cell cell = 0;                                        // of `next.where`
    std::vector<std::pair<Cell, std::uint64_t>> unequal;  // of `next.unequal`
    Ghost ghost;
    std::unordered_map<std::uint64_t, Run*> after;  // by outcome of `next`
    std::uint64_t number = 0;
  };
  struct ThreadState {
    Run* run = nullptr;
    std::vector<std::pair<Cell, std::uint64_t>> stores;  // not yet visible, oldest first
    bool dead = false;
    bool proved = false;
  };
  struct State {
    std::vector<std::uint64_t> cells;
    std::vector<ThreadState> threads;
  };
  static constexpr std::size_t kLongestSchedule = 1000;
  struct Step {
    std::size_t thread;
    const char* what;
    std::uint64_t value;
  };

  Cell cell_of(const void* where) {
    return cells_.try_emplace(where, static_cast<Cell>(cells_.size())).first->second;
  }

  Run* new_run(std::size_t t, std::vector<std::uint64_t> log) {
    Run& run = runs_.emplace_back();
    run.log = std::move(log);
    run.number = runs_.size();
    run.next = Replay::run(run.log, [&] { threads_[t].body(run.ghost); });
    run.cell = cell_of(run.next.where);
    for (const auto& [where, value] : run.next.unequal)
      run.unequal.emplace_back(cell_of(where), value);
    return &run;
  }
  Run* run_after(std::size_t t, Run& run, std::uint64_t outcome) {
    Run*& next = run.after[outcome];
    if (next == nullptr) {
      std::vector<std::uint64_t> log = run.log;
      log.push_back(outcome);
      next = new_run(t, std::move(log));
    }
    return next;
  }

  static std::uint64_t& word(State& state, Cell cell) {
    if (cell >= state.cells.size()) state.cells.resize(cell + 1);
    return state.cells[cell];
  }
  static std::uint64_t visible_to(const State& state, const ThreadState& thread, Cell cell) {
    for (auto store = thread.stores.rbegin(); store != thread.stores.rend(); ++store)
      if (store->first == cell) return store->second;
    return cell < state.cells.size() ? state.cells[cell] : 0;
  }

  static bool may_go(const State& state, const ThreadState& thread) {
    if (thread.dead) return false;
    const Run& run = *thread.run;
    switch (run.next.kind) {
      case Kind::finished:
        return false;
      case Kind::load:
      case Kind::store:
      case Kind::choose:
        return true;
      case Kind::barrier:
      case Kind::set_event:  // a locked instruction, a system call
        return thread.stores.empty();
      case Kind::take_event:
        return thread.stores.empty() && visible_to(state, thread, run.cell) != 0;
      case Kind::wait:
        for (const auto& [cell, value] : run.unequal)
          if (visible_to(state, thread, cell) != value) return true;
        return false;
    }
    return false;
  }

  // Returns the state after the next access of thread `t`; `chosen` decides a `choose`.
  State after(const State& state, std::size_t t, std::uint64_t chosen) {
    State next = state;
    ThreadState& thread = next.threads[t];
    const Run& run = *thread.run;
    std::uint64_t outcome = 0;
    switch (run.next.kind) {
      case Kind::load:
        outcome = visible_to(next, thread, run.cell);
        break;
      case Kind::store:
        if (order_ == Order::sequential)
          word(next, run.cell) = run.next.value;
        else
          thread.stores.emplace_back(run.cell, run.next.value);
        break;
      case Kind::take_event:
        word(next, run.cell) = 0;
        break;
      case Kind::set_event:
        word(next, run.cell) = 1;
        break;
      case Kind::choose:
        outcome = chosen;
        break;
      default:
        break;
    }
    thread.run = run_after(t, *thread.run, outcome);
    return next;
  }

  // Encodes everything that decides the future; small numbers take one byte.
  static std::string key_of(const State& state) {
    std::string key;
    const auto put = [&key](std::uint64_t value) {
      for (; value >= 0x80; value >>= 7) key.push_back(static_cast<char>(value | 0x80));
      key.push_back(static_cast<char>(value));
    };
    for (const ThreadState& thread : state.threads) {
      put(thread.run->number);
      put(thread.stores.size());  // the run decides their contents
      put((thread.dead ? 1u : 0u) + (thread.proved ? 2u : 0u));
    }
    for (Cell cell = 0; cell < state.cells.size(); ++cell) {
      if (state.cells[cell] == 0) continue;
      put(cell);
      put(state.cells[cell]);
    }
    return key;
  }

  std::uint64_t count_from(const State& state) {
    std::string key = key_of(state);
    if (const auto known = seen_.find(key); known != seen_.end()) return known->second;
    std::vector<View> views;
    for (const ThreadState& thread : state.threads)
      views.push_back({thread.run->ghost, thread.dead, thread.run->next.kind == Kind::finished});
    if (const auto wrong = invariant_(views)) fail(*wrong);
    if (path_.size() > kLongestSchedule) fail("the program never ends");
    if (!outcome_.violation.empty()) return 0;

    std::uint64_t schedules = 0;
    bool anything = false;
    const auto follow = [&](std::size_t t, const char* what, std::uint64_t value,
                            const State& next) {
      anything = true;
      path_.push_back({t, what, value});
      const std::uint64_t more = count_from(next);
      path_.pop_back();
      const auto room = std::numeric_limits<std::uint64_t>::max() - schedules;
      schedules += more < room ? more : room;
    };
    for (std::size_t t = 0; t < state.threads.size() && outcome_.violation.empty(); ++t) {
      const ThreadState& thread = state.threads[t];
      const Access& access = thread.run->next;
      if (may_go(state, thread)) {
        const std::uint64_t outcomes = access.kind == Kind::choose ? access.value : 1;
        for (std::uint64_t chosen = 0; chosen < outcomes; ++chosen) {
          const State next = after(state, t, chosen);
          follow(t, name_of(access.kind),
                 access.kind == Kind::store ? access.value : next.threads[t].run->log.back(), next);
        }
      }
      if (!thread.stores.empty()) {
        State next = state;
        const auto [cell, value] = thread.stores.front();
        word(next, cell) = value;
        next.threads[t].stores.erase(next.threads[t].stores.begin());
        follow(t, "becomes visible", value, next);
      }
      if (threads_[t].proof_of_end == nullptr) continue;
      if (!thread.dead && access.kind != Kind::finished) {
        State next = state;
        next.threads[t].dead = true;
        follow(t, "dies", 0, next);
      } else if (!thread.proved && thread.stores.empty()) {
        State next = state;
        next.threads[t].proved = true;
        word(next, cell_of(threads_[t].proof_of_end)) = 1;
        follow(t, "is proved ended", 0, next);
      }
    }
    if (!anything) {
      schedules = 1;
      for (std::size_t t = 0; t < state.threads.size(); ++t)
        if (!views[t].dead && !views[t].finished) fail(threads_[t].name + " waits for ever");
    }
    seen_.emplace(std::move(key), schedules);
    return schedules;
  }

  void fail(const std::string& wrong) {
    if (!outcome_.violation.empty()) return;
    outcome_.violation = wrong + "\n";
    for (const Step& step : path_)
      outcome_.violation += "  " + threads_[step.thread].name + " " + step.what + " " +
                            std::to_string(step.value) + "\n";
  }

  static const char* name_of(Kind kind) {
    switch (kind) {
      case Kind::load:
        return "reads";
      case Kind::store:
        return "writes";
      case Kind::barrier:
        return "barrier";
      case Kind::wait:
        return "goes on";
      case Kind::take_event:
        return "wakes";
      case Kind::set_event:
        return "rings";
      case Kind::choose:
        return "chooses";
      case Kind::finished:
        return "finished";
    }
    return "";
  }

  const Order order_;
  const std::vector<Thread> threads_;
  const Invariant invariant_;
  std::unordered_map<const void*, Cell> cells_;
  std::deque<Run> runs_;
  std::unordered_map<std::string, std::uint64_t> seen_;
  std::vector<Step> path_;
  Outcome outcome_;
};

}  // namespace tendon::test
