// SPDX-License-Identifier: Apache-2.0
//
// The sum of two tensors of n bytes, f32, into both of them, by two threads, each for one half.
// Every byte is read once and written once, and the threads synchronize only at the start. Any
// all_reduce of two members that reads tensors in memory and writes the result to them needs at
// least this. It is the limit for sizes at which the memory is the bottleneck.
#include <atomic>

#include "peer.hpp"

namespace {

constexpr std::size_t kThreads = 2;

/// A barrier: every thread leaves when all have arrived.
class SpinBarrier {
 public:
  void wait() {
    const std::size_t round = round_.load();
    if (come_.fetch_add(1) + 1 == kThreads) {
      come_ = 0;
      round_ = round + 1;
      return;
    }
    while (round_.load() == round) std::this_thread::yield();
  }

 private:
  std::atomic<std::size_t> come_{0};
  std::atomic<std::size_t> round_{0};
};

// Works in blocks of a cache line, which compilers vectorize.
void add_into_both(float* __restrict a, float* __restrict b, std::size_t count) {
  constexpr std::size_t kBlock = 16;
  for (std::size_t i = 0; i < count; i += kBlock) {
    for (std::size_t j = i; j < i + kBlock; ++j) {
      const float sum = a[j] + b[j];
      a[j] = sum;
      b[j] = sum;
    }
  }
}

peer::Result measure(const peer::Options& options, std::size_t size_bytes) {
  peer::TouchedBuffer first(size_bytes, 0);
  peer::TouchedBuffer second(size_bytes, 0);
  const std::size_t warm_up = options.warm_up_for(size_bytes);
  const std::size_t rounds = warm_up + options.iterations_for(size_bytes);
  SpinBarrier barrier;
  std::vector<double> samples_us;  // of the first thread; both wait for the slower one
  const auto work = [&](std::size_t thread) {
    peer::pin_to_core(thread);
    const std::size_t half = size_bytes / sizeof(float) / kThreads;
    auto* const a = reinterpret_cast<float*>(first.data()) + thread * half;
    auto* const b = reinterpret_cast<float*>(second.data()) + thread * half;
    for (std::size_t round = 0; round < rounds; ++round) {
      barrier.wait();
      const auto start = peer::Clock::now();
      add_into_both(a, b, half);
      asm volatile("" : : "r"(a), "r"(b) : "memory");
      barrier.wait();
      if (thread == 0 && round >= warm_up)
        samples_us.push_back(peer::elapsed_us(start, peer::Clock::now()));
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return peer::summarize("memory", "sum of two tensors into both", size_bytes, samples_us);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options =
      peer::parse_options(argc, argv, {.begin_bytes = 1 << 20, .end_bytes = std::size_t{64} << 20});
  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes())
    results.push_back(measure(options, size_bytes));
  peer::print_json("memory", results);
  return 0;
}
