// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tendon::v0::detail {

/// Memory of the receiver in which its peer's GPU says that the bytes of a message are there. The
/// stream that copies message n writes n into its word after the copy. The words only rise.
///
/// A zeroed memfd of its receiver holds one, sealed as its slots are. The peer's host writes
/// `told`: it counts the messages whose copy the host has seen done, and is raised before the
/// doorbell is rung. A receiver that is about to sleep therefore looks at one number.
struct alignas(4096) ReadyWords {
  static constexpr std::uint32_t kCount = 2048;
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

  /// Message n is there once its word is n or more.
  [[nodiscard]] const Word& of(std::uint64_t n) const noexcept { return words[n % kCount]; }
  [[nodiscard]] bool has(std::uint64_t n) const noexcept {
    return of(n).load(std::memory_order_acquire) >= n;
  }

  std::array<Word, kCount> words;
  alignas(128) Word told;
};
static_assert(sizeof(ReadyWords) == 20480 && offsetof(ReadyWords, told) == 16384);

}  // namespace tendon::v0::detail
