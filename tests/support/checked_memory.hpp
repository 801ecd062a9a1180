// SPDX-License-Identifier: Apache-2.0
// Shared memory for the interleaving checker, which stops a program before each access.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace tendon::test {

/// One access to shared memory, or one decision outside the program.
struct Access {
  enum class Kind { load, store, barrier, wait, take_event, set_event, choose, finished };
  Access(Kind what = Kind::finished, const void* at = nullptr, std::uint64_t with = 0)
      : kind(what), where(at), value(with) {}
  Kind kind;
  const void* where;
  std::uint64_t value;  ///< to be stored; for `choose`: the number of outcomes
  std::vector<std::pair<const void*, std::uint64_t>>
      unequal;  ///< `wait`: ends when one of these differs
};

/// The thread that runs now. Takes the answers of its accesses from its log, and stops the thread
/// at the first access that is not in the log.
class Replay {
 public:
  struct Stop {};

  static std::uint64_t perform(Access access) {
    Replay& now = *current();
    if (now.at_ < now.log_.size()) return now.log_[now.at_++];
    now.next_ = std::move(access);
    throw Stop{};
  }

  /// Runs `body` to the end of `log`, and returns its next access.
  template <class Body>
  static Access run(const std::vector<std::uint64_t>& log, Body&& body) {
    Replay replay(log);
    current() = &replay;
    try {
      body();
    } catch (const Stop&) {
    }
    current() = nullptr;
    return std::move(replay.next_);
  }

 private:
  explicit Replay(const std::vector<std::uint64_t>& log) : log_(log) {}
  static Replay*& current() {
    static Replay* replay = nullptr;
    return replay;
  }
  const std::vector<std::uint64_t>& log_;
  std::size_t at_ = 0;
  Access next_;
};

/// The memory policy for which the tests instantiate the rings and doorbells of the product.
struct CheckedMemory {
  struct Word {
    std::uint64_t value = 0;
  };
  using Kind = Access::Kind;

  static std::uint64_t load_relaxed(const Word& word) {
    return Replay::perform({Kind::load, &word});
  }
  static std::uint64_t load_acquire(const Word& word) { return load_relaxed(word); }
  static void store_relaxed(Word& word, std::uint64_t value) {
    Replay::perform({Kind::store, &word, value});
  }
  static void store_release(Word& word, std::uint64_t value) { store_relaxed(word, value); }
  static void barrier() { Replay::perform(Kind::barrier); }
  static void prefetch(const void*) {}  // has no visible effect

  /// Moves plain data word by word, so that a torn entry shows.
  template <class T>
  static void write(T& shared, const T& value) {
    const auto words = std::bit_cast<std::array<std::uint64_t, sizeof(T) / 8>>(value);
    for (std::size_t i = 0; i < words.size(); ++i)
      Replay::perform({Kind::store, reinterpret_cast<const char*>(&shared) + 8 * i, words[i]});
  }
  template <class T>
  static T read(const T& shared) {
    std::array<std::uint64_t, sizeof(T) / 8> words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = Replay::perform({Kind::load, reinterpret_cast<const char*>(&shared) + 8 * i});
    return std::bit_cast<T>(words);
  }

  // Calls for programs of tests only.

  /// Polls until one of the words differs from the value beside it.
  static void wait_while(std::vector<std::pair<const Word*, std::uint64_t>> equal) {
    Access access(Kind::wait);
    for (const auto& [word, value] : equal) access.unequal.emplace_back(word, value);
    Replay::perform(std::move(access));
  }
  /// Stand for read() and write() of an eventfd: the first sleeps until the second was called.
  static void wait_until_rung(Word& event) { Replay::perform({Kind::take_event, &event}); }
  static void ring(Word& event) { Replay::perform({Kind::set_event, &event}); }
  /// Makes the checker try every number below `count`.
  static std::uint64_t choose(std::uint64_t count) {
    return Replay::perform({Kind::choose, nullptr, count});
  }
};

}  // namespace tendon::test
