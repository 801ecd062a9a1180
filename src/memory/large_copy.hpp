// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tendon/core/bytes.hpp>

#include "memory/copy.hpp"
#include "memory/copy_trial.hpp"

namespace tendon::v0::detail {

/// Copies large messages, each in the way that is the fastest here. That depends on the processor's
/// handling of streaming stores with and without a prefetch, and on how much of a copy stays in a
/// cache until the next one. Neither can be looked up: a virtual machine reports caches that it
/// does not have. So the ways are tried, once for each range of sizes, with copies that are needed
/// anyway.
///
/// Owns:    numbers.
/// Threads: thread-safe. One thread at a time is measured; the others, and a child that was forked
///          while a thread of its parent was measured, use memcpy until the way is known.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one load beyond the copy; while a range of sizes is tried, two readings of a clock and
///          two calls of getrusage() for each MiB.
class LargeCopies {
 public:
  constexpr LargeCopies() = default;
  LargeCopies(const LargeCopies&) = delete;
  LargeCopies& operator=(const LargeCopies&) = delete;

  /// As copy_part(), for at least kFirstBytes.front().
  void copy(MutableBytes destination, Bytes source, std::uint64_t whole_bytes);

  /// The result for memory of `whole_bytes`, at least kFirstBytes.front(); empty while that is
  /// still tried.
  struct Choice {
    CopyHint way = CopyHint::cached;
    CopyFigures figures = {};
  };
  [[nodiscard]] std::optional<Choice> choice(std::uint64_t whole_bytes) const;

  /// The beginnings of the ranges of sizes; smaller copies use memcpy. In between, memcpy loses
  /// what it gains from the caches.
  static constexpr std::array<std::uint64_t, 5> kFirstBytes = {
      std::uint64_t{8} << 20, std::uint64_t{12} << 20, std::uint64_t{16} << 20,
      std::uint64_t{24} << 20, std::uint64_t{32} << 20};

 private:
  struct Range {
    explicit constexpr Range(std::uint64_t largest_bytes) : trial(largest_bytes) {}
    // Set last, and once: the trial does not change any more then.
    std::atomic<const CopyHint*> way{nullptr};
    std::atomic_flag is_measured;  // guards the trial until then
    CopyTrial trial;
  };
  [[nodiscard]] static std::size_t index_of(std::uint64_t whole_bytes);
  /// Copies one piece, as a part of the trial if no other thread is measured; returns its bytes.
  static std::uint64_t copy_tried(Range& range, MutableBytes destination, Bytes source);

  // A turn settles for the largest message of its range; larger ones stay in no cache anyway.
  std::array<Range, kFirstBytes.size()> ranges_ = {Range(kFirstBytes[1]), Range(kFirstBytes[2]),
                                                   Range(kFirstBytes[3]), Range(kFirstBytes[4]),
                                                   Range(kFirstBytes[4])};
};

/// The copies of this process.
[[nodiscard]] LargeCopies& large_copies() noexcept;

/// Copies `source` to the front of `destination`, in the fastest way on this machine for memory of
/// `whole_bytes`, of which this is a part: all of a message that is copied piece by piece.
inline void copy_part(MutableBytes destination, Bytes source, std::uint64_t whole_bytes) {
  if (whole_bytes >= LargeCopies::kFirstBytes.front())
    large_copies().copy(destination, source, whole_bytes);
  else if (!source.empty())
    std::memcpy(destination.data(), source.data(), source.size());
}

}  // namespace tendon::v0::detail
