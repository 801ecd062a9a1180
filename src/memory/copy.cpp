// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.hpp"

#include <cstring>

// Sanitizers must see every access, so they get the plain path.
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENDON_STREAMING_COPY 1
#include <emmintrin.h>
#endif

namespace tendon::inline v0::detail {
namespace {

#ifdef TENDON_STREAMING_COPY
// Whole 64-byte lines written past the cache; SSE2 is in every x86-64, so nothing is dispatched.
void stream_lines(std::byte* destination, const std::byte* source, std::size_t line_count) {
  for (std::size_t line = 0; line < line_count; ++line, destination += 64, source += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(source) + 1024, _MM_HINT_NTA);
    const auto* from = reinterpret_cast<const __m128i*>(source);
    auto* to = reinterpret_cast<__m128i*>(destination);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  // Streaming stores are not ordered by a later store-release: the descriptor must not overtake
  // them.
  _mm_sfence();
}
#endif

}  // namespace

void copy_bytes(MutableBytes destination, Bytes source, [[maybe_unused]] CopyHint hint) {
  std::byte* to = destination.data();
  const std::byte* from = source.data();
  std::size_t left = source.size();
  if (left == 0) return;
#ifdef TENDON_STREAMING_COPY
  if (hint == CopyHint::streaming && left >= 4096) {
    const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
    std::memcpy(to, from, head);
    const std::size_t lines = (left - head) / 64;
    stream_lines(to + head, from + head, lines);
    to += head + lines * 64;
    from += head + lines * 64;
    left -= head + lines * 64;
  }
#endif
  std::memcpy(to, from, left);
}

}  // namespace tendon::inline v0::detail
