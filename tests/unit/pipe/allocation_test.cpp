// SPDX-License-Identifier: Apache-2.0
// After warm-up a stable stream allocates nothing, on any thread of the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/sanitizer.hpp"

namespace {
std::atomic<bool> counting{false};
std::atomic<std::uint64_t> allocations{0};
[[maybe_unused]] void count_one() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

#if !TENDON_SANITIZED
// Counts malloc itself, which operator new, the C library and all other libraries call. These are
// glibc's names for the replaced functions; the GNU C library manual, "Replacing malloc".
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  count_one();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  count_one();
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) {
  count_one();
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count_one();
  return __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  count_one();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  count_one();
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? 12 : 0;
}
}
#endif

namespace tendon::test {
namespace {

class Allocation : public PipeTest {
 protected:
  static constexpr int kWindows = 10;
  static constexpr int kWarmUp = 300;
  static constexpr int kMeasured = 300;

  void SetUp() override {
    if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer has its own malloc";
  }
  /// Runs `round` until warm, then counts. Failures inside the measured part would allocate
  /// themselves, so `round` returns bool.
  template <class Round>
  static std::uint64_t allocations_of(Round round) {
    // The counter sees every thread, and the service thread prefaults, ticks and grows its tables a
    // few times a second. So the smallest window counts, which has none of that; each window has
    // the allocations of a message.
    std::uint64_t fewest = ~0ull;
    for (int window = 0; window < kWindows && fewest != 0; ++window) {
      for (int i = 0; i < kWarmUp; ++i)
        if (!round()) return ~0ull;
      allocations = 0;
      counting = true;
      bool fine = true;
      for (int i = 0; i < kMeasured && fine; ++i) fine = round();
      counting = false;
      if (!fine) return ~0ull;
      fewest = std::min(fewest, allocations.load());
    }
    return fewest;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Allocation, testing::Values(kShm, kTcp, kShmManual, kTcpManual),
                         way_name);

TEST_P(Allocation, TheCounterCounts) {
  allocations = 0;
  counting = true;
  delete new int(1);
  void* volatile block = std::malloc(3);
  std::free(block);
  counting = false;
  EXPECT_GE(allocations.load(), 1u);
}

TEST_P(Allocation, SendAndRecv) {
  for (const std::uint64_t size : {100ull, 8000ull, 50'000ull, 400'000ull}) {
    PipePair pair = connect();
    const TensorDict batch = patterned(1, size);
    EXPECT_EQ(allocations_of([&] {
                return pair.server.send(batch, kPatience).has_value() &&
                       pair.client.recv(kPatience).has_value();
              }),
              0u)
        << size;
  }
}

TEST_P(Allocation, SendAndRecvInto) {
  for (const std::uint64_t size : {100ull, 8000ull, 50'000ull, 400'000ull}) {
    PipePair pair = connect();
    const TensorDict batch = patterned(1, size);
    TensorDict into = patterned(2, size);
    EXPECT_EQ(allocations_of([&] {
                return pair.server.send(batch, kPatience).has_value() &&
                       pair.client.recv_into(into, kPatience).has_value();
              }),
              0u)
        << size;
  }
}

TEST_P(Allocation, LoanAndSend) {
  for (const std::uint64_t size : {100ull, 8000ull, 50'000ull, 400'000ull}) {
    PipePair pair = connect();
    const auto schema = bytes_schema(size);
    EXPECT_EQ(allocations_of([&] {
                auto loan = pair.server.loan(schema, kPatience);
                return loan.has_value() &&
                       pair.server.send(*std::move(loan), kPatience).has_value() &&
                       pair.client.recv(kPatience).has_value();
              }),
              0u)
        << size;
  }
}

TEST_P(Allocation, BothDirectionsWithSeveralLeaves) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("obs/image", patterned(1, 30'000)["x"]);
  batch.set("obs/state", Tensor::of<float>({3}, {1, 2, 3}));
  batch.set("reward", Tensor::of<double>({1}, {4}));
  EXPECT_EQ(allocations_of([&] {
              return pair.server.send(batch, kPatience).has_value() &&
                     pair.client.recv(kPatience).has_value() &&
                     pair.client.send(batch, kPatience).has_value() &&
                     pair.server.recv(kPatience).has_value();
            }),
            0u);
}

TEST_P(Allocation, ReadingAReceivedDictAllocatesNothingEither) {
  PipePair pair = connect();
  const TensorDict batch = patterned(1, 50'000);
  std::uint64_t sum = 0;
  EXPECT_EQ(allocations_of([&] {
              if (!pair.server.send(batch, kPatience)) return false;
              const auto received = pair.client.recv(kPatience);
              if (!received) return false;
              sum += static_cast<std::uint64_t>((*received)["x"].span<std::uint8_t>()[7]);
              return true;
            }),
            0u);
}

}  // namespace
}  // namespace tendon::test
