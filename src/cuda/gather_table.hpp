// SPDX-License-Identifier: Apache-2.0
// Small pieces of memory that one kernel packs on a GPU, and how a thread of it copies its share.
// The kernel (gather.cu), its launch and the tests on the host share this file, so it includes
// nothing: the kernel's compiler has no headers.
#pragma once

#ifdef __CUDACC__
#define TENDON_ON_GPU __device__
#else
#define TENDON_ON_GPU
#endif

namespace tendon::v0::detail::cuda {

/// A piece, and its place. Both are memory that the kernel's context reads and writes.
struct GatherEntry {
  unsigned long long destination;
  unsigned long long source;
  unsigned long long size_bytes;
};

/// All parameters of a kernel are at most 4 KiB with every driver.
inline constexpr unsigned kMaxGatherEntries = 170;
/// A block of threads copies so many bytes of one entry, 16 by each thread.
inline constexpr unsigned kGatherChunkBytes = 4096;
inline constexpr unsigned kGatherThreads = kGatherChunkBytes / 16;

/// The parameter of a launch, which has one row of blocks for each entry that is filled in.
struct GatherTable {
  GatherEntry entries[kMaxGatherEntries];
};

struct alignas(16) GatherWord {
  unsigned long long first;
  unsigned long long second;
};

/// Copies each kGatherThreads-th word, from that of this thread on, and likewise the bytes behind
/// the last whole word.
template <class Word>
TENDON_ON_GPU inline void gather_words(unsigned long long destination, unsigned long long source,
                                       unsigned size_bytes, unsigned thread) {
  constexpr unsigned kWordBytes = sizeof(Word);
  const unsigned word_count = size_bytes / kWordBytes;
  for (unsigned at = thread; at < word_count; at += kGatherThreads)
    reinterpret_cast<Word*>(destination)[at] = reinterpret_cast<const Word*>(source)[at];
  for (unsigned at = word_count * kWordBytes + thread; at < size_bytes; at += kGatherThreads)
    reinterpret_cast<char*>(destination)[at] = reinterpret_cast<const char*>(source)[at];
}

/// The share of one thread: its part of a chunk of an entry, by the largest accesses that the
/// alignment of both addresses allows.
TENDON_ON_GPU inline void gather_share(const GatherTable& table, unsigned entry, unsigned chunk,
                                       unsigned thread) {
  const unsigned long long begin = chunk * 1ULL * kGatherChunkBytes;
  const unsigned long long end = table.entries[entry].size_bytes;
  if (begin >= end) return;
  const auto size =
      static_cast<unsigned>(end - begin < kGatherChunkBytes ? end - begin : kGatherChunkBytes);
  const unsigned long long source = table.entries[entry].source + begin;
  const unsigned long long destination = table.entries[entry].destination + begin;
  const unsigned long long both = source | destination;
  if (both % sizeof(GatherWord) == 0)
    gather_words<GatherWord>(destination, source, size, thread);
  else if (both % sizeof(unsigned) == 0)
    gather_words<unsigned>(destination, source, size, thread);
  else
    gather_words<char>(destination, source, size, thread);
}

}  // namespace tendon::v0::detail::cuda
