// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// A full barrier: no later load is satisfied before an earlier store is visible. The only place
/// that makes one. Under ThreadSanitizer (g++ 12 refuses atomic_thread_fence there) it is a seq_cst
/// read-modify-write, which both machine and sanitizer order in the same way.
inline void full_barrier() noexcept {
#if defined(__SANITIZE_THREAD__)
  static constinit std::atomic<std::uint32_t> ordered{0};
  ordered.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// The accesses of rings and doorbells to shared memory. The product uses this policy; the
/// interleaving checker instantiates the same code with one that stops before every access.
struct SharedMemoryPolicy {
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == 8,
                "words are shared between processes");

  static std::uint64_t load_relaxed(const Word& word) {
    return word.load(std::memory_order_relaxed);
  }
  static std::uint64_t load_acquire(const Word& word) {
    return word.load(std::memory_order_acquire);
  }
  static void store_relaxed(Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  }
  static void store_release(Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_release);
  }
  static void barrier() { full_barrier(); }
  /// Fetches the peer's last writes from its cache while the caller looks at something else.
  static void prefetch(const void* shared) { __builtin_prefetch(shared); }
  /// Plain data between a publishing store and the load that saw it.
  template <class T>
  static void write(T& shared, const T& value) {
    shared = value;
  }
  template <class T>
  static T read(const T& shared) {
    T copy = shared;
    // The validated copy must be the used one: without this the compiler may read a field twice,
    // and the peer may write between the two.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return copy;
  }
};

}  // namespace tendon::v0::detail
