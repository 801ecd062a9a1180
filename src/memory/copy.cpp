// SPDX-License-Identifier: Apache-2.0
// Copies around the cache. This file includes itself once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/copy.cpp"
#include "core/instruction_sets.hpp"
// The following code is compiled per target; the order matters.
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "memory/copy.hpp"

HWY_BEFORE_NAMESPACE();
namespace tendon::v0::detail::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// No function of the standard library below, only memcpy: a template made here would be compiled
// for this target, and the linker might use it in the whole program.

constexpr std::size_t kLineBytes = 64;
/// The distance at which the source is fetched ahead: some memory latencies at the speed of a copy.
constexpr std::size_t kAheadBytes = 1024;

/// Copies kBytes, a multiple of kLineBytes, to the beginning of a line.
template <CopyHint kHint, std::size_t kBytes>
HWY_INLINE void stream_lines(std::uint8_t* to, const std::uint8_t* from) {
  const hn::CappedTag<std::uint8_t, kLineBytes> d;
  if constexpr (kHint == CopyHint::prefetched) {
    for (std::size_t at = 0; at < kBytes; at += kLineBytes)
      __builtin_prefetch(from + kAheadBytes + at, 0, 0);
  }
  for (std::size_t at = 0; at < kBytes; at += hn::Lanes(d))
    hn::Stream(hn::LoadU(d, from + at), d, to + at);
}

template <CopyHint kHint>
HWY_INLINE void stream(std::uint8_t* to, const std::uint8_t* from, std::size_t left) {
  constexpr std::size_t kStepBytes = 4 * kLineBytes;
  const std::size_t head =
      (kLineBytes - reinterpret_cast<std::uintptr_t>(to) % kLineBytes) % kLineBytes;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  left -= head;
  for (; left >= kStepBytes; to += kStepBytes, from += kStepBytes, left -= kStepBytes)
    stream_lines<kHint, kStepBytes>(to, from);
  for (; left >= kLineBytes; to += kLineBytes, from += kLineBytes, left -= kLineBytes)
    stream_lines<kHint, kLineBytes>(to, from);
  // Streaming stores are not ordered by a later store-release: the descriptor must not overtake
  // them.
  hwy::FlushStream();
  std::memcpy(to, from, left);
}

}  // namespace

void stream_plainly(std::uint8_t* to, const std::uint8_t* from, std::size_t size_bytes) {
  stream<CopyHint::streaming>(to, from, size_bytes);
}
void stream_prefetched(std::uint8_t* to, const std::uint8_t* from, std::size_t size_bytes) {
  stream<CopyHint::prefetched>(to, from, size_bytes);
}

}  // namespace tendon::v0::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tendon::v0::detail {

HWY_EXPORT(stream_plainly);
HWY_EXPORT(stream_prefetched);

namespace {
// Sanitizers must see every access, and they do not see a streaming store.
constexpr bool kStreams = !(HWY_IS_ASAN || HWY_IS_TSAN || HWY_IS_MSAN);
}  // namespace

void copy_bytes(MutableBytes destination, Bytes source, CopyHint hint) {
  if (source.empty()) return;
  auto* const to = reinterpret_cast<std::uint8_t*>(destination.data());
  const auto* const from = reinterpret_cast<const std::uint8_t*>(source.data());
  if (!kStreams || source.size() < kSmallestStreamed) hint = CopyHint::cached;
  switch (hint) {
    case CopyHint::streaming:
      HWY_DYNAMIC_DISPATCH(stream_plainly)(to, from, source.size());
      return;
    case CopyHint::prefetched:
      HWY_DYNAMIC_DISPATCH(stream_prefetched)(to, from, source.size());
      return;
    case CopyHint::cached:
      break;
  }
  std::memcpy(to, from, source.size());
}

}  // namespace tendon::v0::detail
#endif
