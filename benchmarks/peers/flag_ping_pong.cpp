// SPDX-License-Identifier: Apache-2.0
//
// Two processes and two flags in shared memory: the lower bound of any hand-over between two cores.
// One way is half a round.
#include <sys/mman.h>

#include <atomic>

#include "peer.hpp"

namespace {

// 128, not 64: some cores prefetch lines in pairs, so that adjacent lines would be shared.
constexpr std::size_t kSeparationBytes = 128;

struct Flags {
  alignas(kSeparationBytes) std::atomic<std::uint64_t> ping{0};
  alignas(kSeparationBytes) std::atomic<std::uint64_t> pong{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void wait_for(const std::atomic<std::uint64_t>& flag, std::uint64_t value) {
  static const bool alone = peer::core_count() < 2;
  while (flag.load(std::memory_order_acquire) != value) {
    if (alone) sched_yield();
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto options = peer::parse_options(argc, argv, {.begin_bytes = 8, .end_bytes = 8});
  if (options.begin_bytes != 8 || options.end_bytes != 8) {
    std::fprintf(stderr, "note: -b and -e are ignored, a flag has 8 bytes\n");
  }
  if (options.iterations == 0) options.iterations = 200000;
  const std::size_t warm_up = options.warm_up_for(8);
  const std::size_t rounds = warm_up + options.iterations;

  void* page =
      mmap(nullptr, sizeof(Flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) peer::fail_errno("mmap");
  auto* flags = new (page) Flags;

  const pid_t child = peer::spawn([&] {
    peer::pin_to_core(1);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      wait_for(flags->ping, round);
      flags->pong.store(round, std::memory_order_release);
    }
  });
  peer::pin_to_core(0);

  std::uint64_t round = 0;
  const auto rounds_us = peer::time_rounds(warm_up, options.iterations, [&] {
    flags->ping.store(++round, std::memory_order_release);
    wait_for(flags->pong, round);
  });
  peer::reap(child);
  const peer::Result result = peer::summarize_ping_pong("flag", "ping_pong", 8, rounds_us);
  peer::print_json("flag_ping_pong", {&result, 1});
  return 0;
}
