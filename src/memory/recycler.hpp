// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tendon::inline v0::detail {

/// Keeps freed blocks of one size for the next use, so that a stream in steady state allocates
/// nothing. Thread-safe; keeps at most `kept_count` blocks.
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

  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }

  [[nodiscard]] void* take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        void* block = free_.back();
        free_.pop_back();
        return block;
      }
    }
    return ::operator new(block_bytes_, kAlignment);
  }

  void give(void* block) noexcept {
    {
      std::lock_guard lock(mutex_);
      if (free_.size() < kept_count_) {
        free_.push_back(block);  // reserved: cannot throw
        return;
      }
    }
    ::operator delete(block, kAlignment);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  const std::size_t block_bytes_;
  const std::size_t kept_count_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

/// Lets std::allocate_shared take its block from a Recycler; what does not fit comes from the heap.
template <class T>
class RecyclingAllocator {
  static_assert(alignof(T) <= 64, "blocks are aligned to 64 bytes");

 public:
  using value_type = T;

  explicit RecyclingAllocator(std::shared_ptr<Recycler> recycler)
      : recycler_(std::move(recycler)) {}
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>& other)  // NOLINT: rebinding converts
      : recycler_(other.recycler()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (fits(count)) return static_cast<T*>(recycler_->take());
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    if (fits(count))
      recycler_->give(block);
    else
      ::operator delete(block, std::align_val_t{64});
  }

  [[nodiscard]] const std::shared_ptr<Recycler>& recycler() const noexcept { return recycler_; }
  template <class U>
  bool operator==(const RecyclingAllocator<U>& other) const noexcept {
    return recycler_ == other.recycler();
  }

 private:
  [[nodiscard]] bool fits(std::size_t count) const noexcept {
    return count * sizeof(T) <= recycler_->block_bytes();
  }
  std::shared_ptr<Recycler> recycler_;
};

}  // namespace tendon::inline v0::detail
