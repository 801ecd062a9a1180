// SPDX-License-Identifier: Apache-2.0
#include "memory/large_copy.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

namespace tendon::v0::detail {
namespace {

/// Each piece is timed separately, so that one disturbance costs one piece.
constexpr std::uint64_t kPieceBytes = CopyTrial::kSampleBytes;

/// Counts disturbances of a measurement in this thread: new pages, and losses of the CPU.
std::uint64_t disturbances() {
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt + usage.ru_nivcsw);
}

// Not a function's static: a child forked while that is being made would wait for ever.
constinit LargeCopies process_copies;

}  // namespace

LargeCopies& large_copies() noexcept { return process_copies; }

std::size_t LargeCopies::index_of(std::uint64_t whole_bytes) {
  const auto above = std::ranges::upper_bound(kFirstBytes, whole_bytes);
  return static_cast<std::size_t>(above - kFirstBytes.begin()) - 1;
}

std::optional<LargeCopies::Choice> LargeCopies::choice(std::uint64_t whole_bytes) const {
  const Range& range = ranges_[index_of(whole_bytes)];
  const CopyHint* const way = range.way.load(std::memory_order_acquire);
  if (way == nullptr) return {};
  return Choice{*way, range.trial.figures()};
}

void LargeCopies::copy(MutableBytes destination, Bytes source, std::uint64_t whole_bytes) {
  Range& range = ranges_[index_of(whole_bytes)];
  while (!source.empty()) {
    if (const CopyHint* const way = range.way.load(std::memory_order_relaxed))
      return copy_bytes(destination, source, *way);
    const std::uint64_t done = copy_tried(range, destination, source);
    destination = destination.subspan(done);
    source = source.subspan(done);
  }
}

std::uint64_t LargeCopies::copy_tried(Range& range, MutableBytes destination, Bytes source) {
  const Bytes piece = source.first(std::min<std::uint64_t>(kPieceBytes, source.size()));
  // Parts that are never streamed would be counted as if they were.
  if (piece.size() < kSmallestStreamed ||
      range.is_measured.test_and_set(std::memory_order_acquire)) {
    copy_bytes(destination, piece, CopyHint::cached);
    return piece.size();
  }
  CopyTrial& trial = range.trial;
  if (trial.is_over()) {  // since `way` was read
    range.is_measured.clear(std::memory_order_release);
    return 0;
  }
  using Clock = std::chrono::steady_clock;
  const std::uint64_t before = disturbances();
  const auto start = Clock::now();
  copy_bytes(destination, piece, trial.way());
  const auto end = Clock::now();
  if (disturbances() != before) {
    trial.was_disturbed();
  } else {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
    trial.took(piece.size(), static_cast<std::uint64_t>(ns));
  }
  if (trial.is_over()) {
    const CopyHint chosen = choose_copy(trial.figures());
    range.way.store(&kCopyHints[static_cast<std::size_t>(chosen)], std::memory_order_release);
  }
  range.is_measured.clear(std::memory_order_release);
  return piece.size();
}

}  // namespace tendon::v0::detail
