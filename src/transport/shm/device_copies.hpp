// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <utility>

#include "cuda/registered_memory.hpp"
#include "transport/link.hpp"
#include "transport/shm/ready_words.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// The ready words of a peer, as one GPU of this process writes them.
struct PeerWords {
  std::shared_ptr<cuda::RegisteredMemory> registered;
  ReadyWords* memory = nullptr;  ///< kept by `registered`; nothing in it is read

  [[nodiscard]] cuda::DeviceAddress address_of(std::uint64_t n) const noexcept {
    return registered->address() + n % ReadyWords::kCount * sizeof(ReadyWords::Word);
  }
};

/// The messages of a link whose tensors GPUs still copy. They are counted from 1 on, and each has
/// one of the peer's ready words until its copy has ended.
///
/// Owns:    a share of the link's memory, for the doorbell.
/// Threads: thread-safe. next() and begin() of one message are under the link's sending lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a short lock.
class DeviceCopies {
 public:
  explicit DeviceCopies(std::shared_ptr<ShmMemory> memory) : memory_(std::move(memory)) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The number of the next message. Empty: the copy of the former user of its word has not ended.
  /// Its end is news.
  [[nodiscard]] std::optional<std::uint64_t> next();
  /// Notes that the message with that number is placed.
  void begin(std::uint64_t number);
  /// True if all have ended. If not, the end of the next one is news.
  [[nodiscard]] bool are_over();
  enum class How : std::uint8_t { done, lost };
  /// Ends the copy of this message. A completed copy raises the count in `words`, and rings if the
  /// peer sleeps. True: somebody asked for this news.
  [[nodiscard]] bool end(std::uint64_t number, How how, const PeerWords& words);

  /// True if there is unused news. No lock.
  [[nodiscard]] bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }
  bool use_up_news() noexcept { return has_news() && has_news_.exchange(false); }

 private:
  const std::shared_ptr<ShmMemory> memory_;
  Mutex mutex_;
  std::uint64_t last_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t under_way_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::bitset<ReadyWords::kCount> in_use_ TENDON_GUARDED_BY(mutex_);
  // The peer may not have read yet that these are incomplete.
  std::bitset<ReadyWords::kCount> lost_ TENDON_GUARDED_BY(mutex_);
  bool is_asked_ TENDON_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_news_{false};
};

/// The copy of one message that was placed. The GPU work of the message has a share of it; the last
/// one is dropped when the GPU has done the work or never will.
///
/// Owns:    shares of the words and of the count.
/// Threads: fail() before the last share is dropped, in the device thread as a rule.
/// Errors:  none: the peer is told of a lost copy.
/// Blocks:  never.
/// Cost:    at its end: two short locks, and a system call if the peer sleeps.
class DeviceCopy {
 public:
  /// `wake` is called after news that somebody asked for; `told`, if set, at the end.
  struct Ends {
    std::shared_ptr<DeviceCopies> copies;
    std::shared_ptr<const PeerWords> words;
    std::shared_ptr<cuda::PrimaryContext> context;
    std::weak_ptr<Link> link;
    std::function<void()> wake;
    std::function<void(DeviceCopies::How)> told;
  };
  DeviceCopy(Ends ends, std::uint64_t number) : ends_(std::move(ends)), number_(number) {}
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  ~DeviceCopy();

  /// Notes that its word cannot be written.
  void fail() noexcept { has_failed_.store(true); }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] cuda::DeviceAddress word() const noexcept {
    return ends_.words->address_of(number_);
  }
  /// Writes the word from the host. Precondition: the host has seen that the copies are done, or
  /// lost.
  void write_word() noexcept;

 private:
  const Ends ends_;
  const std::uint64_t number_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace tendon::v0::detail
