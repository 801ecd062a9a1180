// SPDX-License-Identifier: Apache-2.0
// Mutex, Lock and CondVar beside what they stand for. Alone and by two threads:
//   build/release/benchmarks/mutex_benchmark --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <tendon/core/mutex.hpp>
#include <thread>

namespace {

using tendon::detail::CondVar;
using tendon::detail::Lock;
using tendon::detail::Mutex;

// As long as a process has one thread, glibc locks without atomic operations.
const std::jthread second_thread([](const std::stop_token& stop) {
  while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
});

std::mutex std_mutex;
Mutex mutex;
std::uint64_t count = 0;

void lock_std(benchmark::State& state) {
  for (auto _ : state) {
    const std::lock_guard lock(std_mutex);
    benchmark::DoNotOptimize(++count);
  }
}
BENCHMARK(lock_std)->ThreadRange(1, 2);

void lock_tendon(benchmark::State& state) {
  for (auto _ : state) {
    const Lock lock(mutex);
    benchmark::DoNotOptimize(++count);
  }
}
BENCHMARK(lock_tendon)->ThreadRange(1, 2);

/// Two threads take turns, each woken by the other. Wait is called in a loop by each.
template <class Turn>
void take_turns(benchmark::State& state, Turn turn) {
  std::thread other([&] {
    while (turn(1, false)) {
    }
  });
  for (auto _ : state) (void)turn(0, false);
  (void)turn(0, true);
  other.join();
}

void wait_std(benchmark::State& state) {
  std::mutex lock_of;
  std::condition_variable changed;
  int next = 0;
  bool over = false;
  take_turns(state, [&](int mine, bool last) {
    std::unique_lock lock(lock_of);
    changed.wait(lock, [&] { return next == mine || over; });
    next = 1 - mine;
    over = over || last;
    changed.notify_one();
    return !over;
  });
}
BENCHMARK(wait_std)->UseRealTime();

void wait_tendon(benchmark::State& state) {
  Mutex lock_of;
  CondVar changed;
  int next = 0;
  bool over = false;
  take_turns(state, [&](int mine, bool last) {
    const Lock lock(lock_of);
    while (next != mine && !over) changed.wait(lock_of);
    next = 1 - mine;
    over = over || last;
    changed.notify_one();
    return !over;
  });
}
BENCHMARK(wait_tendon)->UseRealTime();

}  // namespace
