// SPDX-License-Identifier: Apache-2.0
//
// Measures the cost of memory below a pipe: a slot, against the usual allocation with its first
// touch; and sums in shared memory, with small pages and with huge ones.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "core/fd.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kPage = 4096;
constexpr std::align_val_t kAlignment{64};

/// Writes one byte of each page, so that its memory is allocated.
void touch(std::byte* memory, std::uint64_t size_bytes) {
  for (std::uint64_t at = 0; at < size_bytes; at += kPage) memory[at] = std::byte{1};
  benchmark::ClobberMemory();
}

// The first loan has paid for the pages; later ones find them.
void slot_acquire_touch_release(benchmark::State& state) {
  const auto size_bytes = static_cast<std::uint64_t>(state.range(0));
  SlotPool pool("benchmark", 4 * size_bytes);
  const auto first = pool.acquire(size_bytes);
  if (!first) return state.SkipWithError("no slot");
  touch(first->memory.data(), size_bytes);
  pool.release(first->id);
  for ([[maybe_unused]] auto round : state) {
    const auto slot = pool.acquire(size_bytes);
    touch(slot->memory.data(), size_bytes);
    pool.release(slot->id);
  }
}

// Measures memory that is new to the program. glibc keeps freed blocks of up to 32 MiB after the
// first one, unless this is disabled.
void new_first_touch_delete(benchmark::State& state) {
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  const auto size_bytes = static_cast<std::uint64_t>(state.range(0));
  for ([[maybe_unused]] auto round : state) {
    auto* memory = static_cast<std::byte*>(::operator new(size_bytes, kAlignment));
    touch(memory, size_bytes);
    ::operator delete(memory, kAlignment);
  }
}

constexpr std::int64_t kSizes[] = {1 * kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 128 * kMiB};
void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t size_bytes : kSizes) benchmark->Arg(size_bytes);
  benchmark->UseRealTime();
}

/// Shared memory like that of a pool, at an address that permits huge pages.
class SharedFloats {
 public:
  SharedFloats(std::uint64_t size_bytes, bool huge)
      : size_bytes_(size_bytes), fd_(memfd_create("benchmark", MFD_CLOEXEC)) {
    constexpr std::uint64_t kHugePage = 2 * kMiB;
    reserved_ = mmap(nullptr, size_bytes + kHugePage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_ == MAP_FAILED || ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0)
      return;
    const auto begin = (reinterpret_cast<std::uintptr_t>(reserved_) + kHugePage - 1) / kHugePage;
    void* const mapped = mmap(reinterpret_cast<void*>(begin * kHugePage), size_bytes,
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0);
    if (mapped == MAP_FAILED) return;
    if (huge) madvise(mapped, size_bytes, MADV_HUGEPAGE);
    std::memset(mapped, 0, size_bytes);
    data_ = static_cast<float*>(mapped);
  }
  ~SharedFloats() {
    if (reserved_ != MAP_FAILED) munmap(reserved_, size_bytes_ + 2 * kMiB);
  }
  SharedFloats(const SharedFloats&) = delete;
  SharedFloats& operator=(const SharedFloats&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  const std::uint64_t size_bytes_;
  const OwnedFd fd_;
  void* reserved_ = MAP_FAILED;
  float* data_ = nullptr;
};

bool shared_memory_may_be_huge() {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string text;
  std::getline(setting, text);
  return text.find("[never]") == std::string::npos && text.find("[deny]") == std::string::npos;
}

// Measures a member's sum in all_reduce from pool memory, to see whether huge pages help there.
void add_shared(benchmark::State& state, bool huge) {
  const auto size_bytes = static_cast<std::uint64_t>(state.range(0));
  if (huge && !shared_memory_may_be_huge())
    return state.SkipWithError("this kernel gives shared memory no huge pages (shmem_enabled)");
  const SharedFloats mine(size_bytes, huge);
  const SharedFloats theirs(size_bytes, huge);
  if (mine.data() == nullptr || theirs.data() == nullptr) return state.SkipWithError("no memory");
  for ([[maybe_unused]] auto round : state) {
    for (std::uint64_t i = 0; i < size_bytes / sizeof(float); i += 16)
      for (std::uint64_t j = i; j < i + 16; ++j) mine.data()[j] += theirs.data()[j];
    benchmark::ClobberMemory();
  }
}
void add_shared_small_pages(benchmark::State& state) { add_shared(state, false); }
void add_shared_huge_pages(benchmark::State& state) { add_shared(state, true); }

BENCHMARK(slot_acquire_touch_release)->Apply(sizes);
BENCHMARK(add_shared_small_pages)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB);
BENCHMARK(add_shared_huge_pages)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB);
BENCHMARK(new_first_touch_delete)->Apply(sizes);

}  // namespace
}  // namespace tendon::v0::detail
