// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <tendon/core/version.hpp>
#include <utility>
#include <vector>

#include "core/process_wide.hpp"

namespace tendon::v0::detail {

/// Keeps freed blocks of one size for the next use, so that a stream in steady state allocates
/// nothing.
///
/// Owns:    at most `kept_count` free blocks.
/// Threads: thread-safe. A thread that finds another one inside for long (it was suspended there,
///          or did not survive a fork) uses the heap instead of waiting.
/// Errors:  std::bad_alloc.
/// Blocks:  never.
/// Cost:    one atomic exchange.
class Recycler {
 public:
  Recycler(std::size_t block_bytes, std::size_t kept_count)
      : block_bytes_(block_bytes), kept_count_(kept_count) {
    free_.reserve(kept_count);
  }
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;
  ~Recycler() {
    for (void* block : free_) ::operator delete(block, kAlignment);
  }

  [[nodiscard]] void* take() {
    if (enter()) {
      void* block = nullptr;
      if (!free_.empty()) {
        block = free_.back();
        free_.pop_back();
      }
      leave();
      if (block != nullptr) return block;
    }
    return ::operator new(block_bytes_, kAlignment);
  }

  void give(void* block) noexcept {
    if (enter()) {
      const bool kept = free_.size() < kept_count_;
      if (kept) free_.push_back(block);  // reserved: cannot throw
      leave();
      if (kept) return;
    }
    ::operator delete(block, kAlignment);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  [[nodiscard]] bool enter() noexcept {
    // The others are inside for some ten instructions.
    for (int i = 0; i < 1000; ++i)
      if (!busy_.test_and_set(std::memory_order_acquire)) return true;
    return false;
  }
  void leave() noexcept { busy_.clear(std::memory_order_release); }

  const std::size_t block_bytes_;
  const std::size_t kept_count_;
  std::atomic_flag busy_;
  std::vector<void*> free_;
};

/// Lets std::allocate_shared take its block from a Recycler of the process, one for each type. It
/// has no state: copying one, as allocate_shared does, costs nothing.
template <class T>
class RecyclingAllocator {
  static_assert(alignof(T) <= 64, "blocks are aligned to 64 bytes");

 public:
  using value_type = T;

  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}  // NOLINT: rebinding converts

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count == 1) return static_cast<T*>(store().take());
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    if (count == 1)
      store().give(block);
    else
      ::operator delete(block, std::align_val_t{64});
  }

  template <class U>
  bool operator==(const RecyclingAllocator<U>&) const noexcept {
    return true;
  }

 private:
  static constexpr std::size_t kKeptBytes = 2u << 20;
  static constexpr std::size_t kKeptCount =
      std::clamp<std::size_t>(kKeptBytes / sizeof(T), 64, 1024);

  [[nodiscard]] static Recycler& store() {
    return store_.get([] { return std::make_unique<Recycler>(sizeof(T), kKeptCount); });
  }

  static inline constinit MadeOnce<Recycler> store_;
};

/// std::make_shared, from a Recycler.
template <class T, class... Arguments>
[[nodiscard]] std::shared_ptr<T> make_recycled(Arguments&&... arguments) {
  return std::allocate_shared<T>(RecyclingAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace tendon::v0::detail
