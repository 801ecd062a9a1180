// SPDX-License-Identifier: Apache-2.0
// Rings in shared memory: one process writes entries, the other reads them. State machine and
// orderings: docs/protocol.md, "Rings"; tests/unit/transport checks every interleaving of this very
// code.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "transport/shm/shared_memory_policy.hpp"

namespace tendon::v0::detail {

/// The two counters of a ring, as they lie in shared memory. Each has one writer and 128 bytes to
/// itself (two cache lines: the prefetcher fetches pairs). They count entries since the beginning
/// and never wrap in practice; only their difference is bounded.
template <class Memory>
struct RingCounters {
  alignas(128) typename Memory::Word tail{0};  ///< written by the producer: entries published
  alignas(128) typename Memory::Word head{0};  ///< written by the consumer: entries consumed
};

/// The writing end of a ring.
///
/// Owns:    nothing; the memory outlives it.
/// Threads: one at a time.
/// Errors:  corrupt() when the consumer's counter left [its last value, published]: the link must
///          be failed.
/// Blocks:  never.
/// Cost:    stage: one entry written; publish: one store. The consumer's counter is read only when
///          the ring looks full.
template <class Entry, class Memory = SharedMemoryPolicy>
class RingProducer {
 public:
  /// `entries.size()` is a power of two.
  RingProducer(RingCounters<Memory>& counters, std::span<Entry> entries)
      : counters_(&counters), entries_(entries) {}

  /// Writes the next entry without showing it to the consumer. False when the ring is full.
  [[nodiscard]] bool stage(const Entry& entry) {
    if (tail_ - seen_head_ == entries_.size() && !look_for_room()) return false;
    Memory::write(entries_[tail_ & (entries_.size() - 1)], entry);
    ++tail_;
    return true;
  }
  /// Shows every staged entry to the consumer.
  void publish() {
    published_ = tail_;
    Memory::store_release(counters_->tail, tail_);
  }
  /// Forgets the last staged entry that was not published yet.
  void unstage() { --tail_; }

  [[nodiscard]] bool full() { return !has_room(1); }
  /// True if there is room for `count` entries, at most as many as the ring has.
  [[nodiscard]] bool has_room(std::uint64_t count) {
    const std::uint64_t most = entries_.size() - count;
    return tail_ - seen_head_ <= most || (look_for_room() && tail_ - seen_head_ <= most);
  }
  [[nodiscard]] bool corrupt() const { return corrupt_; }
  /// Entries staged since the beginning.
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  /// Entries consumed at the last look, by which full() decided. A thread that sleeps until there
  /// is room waits for a change from this value, not from a newer one.
  [[nodiscard]] std::uint64_t seen_head() const { return seen_head_; }
  /// Entries that the consumer has consumed; reads its counter.
  [[nodiscard]] std::uint64_t consumed() {
    (void)look_for_room();
    return seen_head_;
  }

 private:
  bool look_for_room() {
    const std::uint64_t head = Memory::load_acquire(counters_->head);
    // Outside [seen_head, published]: an entry that was never shown cannot be consumed.
    if (head - seen_head_ > published_ - seen_head_) {
      corrupt_ = true;
      return false;
    }
    seen_head_ = head;
    return tail_ - seen_head_ < entries_.size();
  }

  RingCounters<Memory>* counters_;
  std::span<Entry> entries_;
  // Private copies: the peer's writes to the shared counter change nothing here.
  std::uint64_t tail_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t seen_head_ = 0;  // last valid value of the consumer's counter
  bool corrupt_ = false;
};

/// The reading end of a ring.
///
/// Owns:    nothing; the memory outlives it.
/// Threads: one at a time; has_entry() may be called by anyone.
/// Errors:  corrupt() when the producer's counter left [head, head + capacity]: the link must be
///          failed.
/// Blocks:  never.
/// Cost:    the producer's counter is read once per batch; entries are copied out once, then
///          validated.
template <class Entry, class Memory = SharedMemoryPolicy>
class RingConsumer {
 public:
  RingConsumer(RingCounters<Memory>& counters, std::span<const Entry> entries)
      : counters_(&counters), entries_(entries) {}

  /// A glance: true if there is an unreleased entry.
  [[nodiscard]] bool has_entry() const {
    const std::uint64_t released = released_.load(std::memory_order_relaxed);
    // The entry was written before the counter: prefetching brings both lines from the producer's
    // cache at once, instead of one after the other.
    Memory::prefetch(&entries_[released & (entries_.size() - 1)]);
    return Memory::load_acquire(counters_->tail) != released;
  }

  /// Copies the next entry out. False when there is none. The place stays taken until release().
  [[nodiscard]] bool pop(Entry& entry) {
    if (head_ == seen_tail_ && !look_for_entries()) return false;
    entry = Memory::read(entries_[head_ & (entries_.size() - 1)]);
    ++head_;
    return true;
  }
  /// Leaves the entry that was popped last, and not released yet, for the next pop().
  void unpop() { --head_; }
  /// Returns the places of all popped entries to the producer.
  void release() {
    released_.store(head_, std::memory_order_relaxed);
    Memory::store_release(counters_->head, head_);
  }

  [[nodiscard]] bool corrupt() const { return corrupt_; }
  [[nodiscard]] std::uint64_t head() const { return head_; }
  /// Entries seen but not popped yet.
  [[nodiscard]] std::uint64_t backlog() const { return seen_tail_ - head_; }

 private:
  bool look_for_entries() {
    const std::uint64_t tail = Memory::load_acquire(counters_->tail);
    if (tail - head_ > entries_.size()) {
      corrupt_ = true;
      return false;
    }
    seen_tail_ = tail;
    return head_ != seen_tail_;
  }

  RingCounters<Memory>* counters_;
  std::span<const Entry> entries_;
  std::uint64_t head_ = 0;
  std::uint64_t seen_tail_ = 0;
  // The last value written to the shared counter: a peer that scribbles on that cannot keep a
  // sleeper awake.
  std::atomic<std::uint64_t> released_{0};
  bool corrupt_ = false;
};

/// Tells the other side in shared memory whether this one sleeps, so that it rings only then.
///
///   sleeper: announce(what) ; barrier ; look at every ring once more ; sleep ; awake()
///   ringer:  publish        ; barrier ; if asleep(what) ring the eventfd
///
/// Both barriers together make a lost wake-up impossible: either the sleeper's second look sees the
/// published entry, or the ringer sees the word. Spurious rings are harmless.
template <class Memory = SharedMemoryPolicy>
class SleepWord {
 public:
  static constexpr std::uint64_t kForMessages = 1;  ///< a descriptor wakes me
  static constexpr std::uint64_t kForReturns = 2;   ///< a returned slot wakes me
  static constexpr std::uint64_t kForFlags = 4;     ///< a flag in a published segment wakes me

  explicit SleepWord(typename Memory::Word& word) : word_(&word) {}

  void announce(std::uint64_t what) {
    Memory::store_relaxed(*word_, what);
    Memory::barrier();
  }
  void awake() { Memory::store_relaxed(*word_, 0); }

  [[nodiscard]] bool asleep(std::uint64_t what) const {
    Memory::barrier();
    return asleep_behind_barrier(what);
  }
  /// The same for a caller that made the barrier itself, once for many words.
  [[nodiscard]] bool asleep_behind_barrier(std::uint64_t what) const {
    return (Memory::load_relaxed(*word_) & what) != 0;
  }

 private:
  typename Memory::Word* word_;
};

}  // namespace tendon::v0::detail
