// SPDX-License-Identifier: Apache-2.0
// Measures the steps of a hand-over from loan() or send() in one process to recv() in the other,
// and the costs of their basic operations. The library is built with time stamps
// (-DTENDON_STAGE_CLOCK=ON). Their own cost is measured and subtracted from each step. Both ends
// are pinned and spin.
//   tools/bench_hand_over.sh
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <vector>

#include "core/stage_clock.hpp"
#include "peers/peer.hpp"

#ifndef TENDON_STAGE_CLOCK
int main() {
  std::fputs("error: the library has no time stamps in it; use tools/bench_hand_over.sh\n", stderr);
  return 1;
}
#else

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Listener;
using tendon::Pipe;
using tendon::Schema;
using tendon::TensorDict;
using tendon::detail::Stage;
using tendon::detail::StageStamp;

constexpr std::size_t kWarmUp = 2'000;
constexpr std::size_t kRounds = 20'000;
constexpr std::size_t kStampsOfRound = 64;
constexpr auto kDeadline = 30s;
constexpr std::size_t kStageCount = static_cast<std::size_t>(Stage::released) + 1;

enum class Way : std::uint8_t { loan, copy };
struct Case {
  const char* name;
  Way way;
  std::int64_t size_bytes;
};
constexpr std::array kCases{Case{"loan of 1 KiB", Way::loan, 1024},
                            Case{"copy of 8 bytes", Way::copy, 8}};

/// One step: its description, its two stamps, and the case if it is part of one only.
struct Step {
  Stage from;
  Stage to;
  const char* side;
  const char* what;
  std::optional<Way> way{};
};
constexpr std::array kSteps{
    Step{Stage::begun, Stage::slot_acquired, "sender", "a warm slot out of the ledger", Way::loan},
    Step{Stage::slot_acquired, Stage::loaned, "sender", "its TensorDict", Way::loan},
    Step{Stage::loaned, Stage::prepared, "sender", "one sender at a time, the message described",
         Way::loan},
    Step{Stage::begun, Stage::prepared, "sender", "one sender at a time, the message described",
         Way::copy},
    Step{Stage::prepared, Stage::numbered, "sender", "lock of the sends, schema, window, number"},
    Step{Stage::numbered, Stage::slot_marked, "sender", "lock of the ledger, slot marked as sent",
         Way::loan},
    Step{Stage::slot_marked, Stage::placed, "sender", "descriptor into the ring", Way::loan},
    Step{Stage::numbered, Stage::placed, "sender", "lock of the ring, descriptor and bytes in",
         Way::copy},
    Step{Stage::placed, Stage::shown, "sender", "shown: the counter of the ring is stored"},
    Step{Stage::shown, Stage::seen, "both", "cache lines change hands, and a look at them"},
    Step{Stage::seen, Stage::popped, "receiver", "lock of the receives, descriptor copied out"},
    Step{Stage::popped, Stage::body_made, "receiver", "descriptor checked, the body's owner made"},
    Step{Stage::body_made, Stage::dispatched, "receiver", "pipe found, into its inbox"},
    Step{Stage::dispatched, Stage::taken, "receiver", "out of the inbox, credit counted"},
    Step{Stage::taken, Stage::received, "receiver", "its TensorDict; waiting ends"},
    Step{Stage::received, Stage::released, "receiver", "released: into the ring of returns"},
};

void write_whole(int fd, const void* data, std::size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t written = write(fd, next, size);
    if (written <= 0) peer::fail_errno("write");
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}
std::vector<StageStamp> read_stamps(int fd) {
  std::vector<StageStamp> stamps(kRounds * kStampsOfRound);
  char* const data = reinterpret_cast<char*>(stamps.data());
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0; size += static_cast<std::size_t>(got))
    got = read(fd, data + size, stamps.size() * sizeof(StageStamp) - size);
  stamps.resize(size / sizeof(StageStamp));
  return stamps;
}

void stamp(Stage stage) { tendon::detail::stamp_stage(stage); }

class End {
 public:
  End(Pipe& pipe, const Case& which) : pipe_(pipe), way_(which.way) {
    schema_ = Schema::make({{"x", tendon::DType::u8, {which.size_bytes}}}).value();
    batch_.try_set("x", tendon::Tensor::empty(tendon::DType::u8, {which.size_bytes}).value())
        .value();
  }
  void send() {
    stamp(Stage::begun);
    if (way_ == Way::copy) {
      pipe_.send(batch_, deadline_).value();
    } else {
      auto loan = pipe_.loan(schema_, deadline_).value();
      stamp(Stage::loaned);
      pipe_.send(std::move(loan), deadline_).value();
    }
    stamp(Stage::sent);
  }
  void recv() {
    {
      auto received = pipe_.recv(deadline_);
      received.value();
      stamp(Stage::received);
    }
    stamp(Stage::released);
  }

 private:
  Pipe& pipe_;
  Way way_;
  std::shared_ptr<const Schema> schema_;
  TensorDict batch_;
  tendon::Deadline deadline_{kDeadline * 10};
};

tendon::ContextOptions options() { return {.wait_policy = tendon::WaitPolicy::latency}; }

void echo(const peer::Words& words, int out, const Case& which) {
  Context context = Context::create(options()).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  words.write_text(listener.address());
  Pipe pipe = listener.accept(kDeadline).value();
  std::vector<StageStamp> stamps;
  stamps.reserve(kRounds * kStampsOfRound);
  std::thread([&] {
    peer::pin_to_core(1);
    End end(pipe, which);
    for (std::size_t i = 0; i < kWarmUp + kRounds; ++i) {
      if (i == kWarmUp) tendon::detail::stage_stamps = &stamps;
      end.recv();
      end.send();
    }
  }).join();
  write_whole(out, stamps.data(), stamps.size() * sizeof(StageStamp));
  close(out);
  (void)pipe.recv_message(kDeadline);  // until the other end closes
}

/// The stamps of each hop: the sender's of sending, the receiver's of receiving. The last stamp of
/// a stage counts, because an earlier look found nothing.
using Hop = std::array<std::uint64_t, kStageCount>;
/// Adds one side's stamps of the stages `first` to `last` to every other hop.
void add(const std::vector<StageStamp>& stamps, Stage first, Stage last, std::size_t number,
         std::vector<Hop>& hops) {
  for (const StageStamp& each : stamps) {
    if (each.stage < first || each.stage > last) continue;
    if (number >= hops.size()) break;
    hops[number][static_cast<std::size_t>(each.stage)] = each.ticks;
    if (each.stage == last) number += 2;
  }
}

double ticks_per_ns() {
  const auto begin = peer::Clock::now();
  const std::uint64_t ticks = __rdtsc();
  while (peer::Clock::now() - begin < 100ms) {
  }
  return static_cast<double>(__rdtsc() - ticks) /
         std::chrono::duration<double, std::nano>(peer::Clock::now() - begin).count();
}

template <class F>
double ns_each(F operation) {
  constexpr int kCount = 1'000'000;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = peer::Clock::now();
    for (int i = 0; i < kCount; ++i) operation();
    const std::chrono::duration<double, std::nano> took = peer::Clock::now() - begin;
    best = std::min(best, took.count() / kCount);
  }
  return best;
}

double stamp_ns() {
  std::vector<StageStamp> stamps;
  stamps.reserve(1'000'000);
  tendon::detail::stage_stamps = &stamps;
  const double cost = ns_each([&] {
    if (stamps.size() == stamps.capacity()) stamps.clear();
    stamp(Stage::begun);
  });
  tendon::detail::stage_stamps = nullptr;
  return cost;
}

void print_operations() {
  std::mutex mutex;
  std::atomic<std::uint64_t> word{0};
  auto owner = std::make_shared<int>(0);
  std::thread([] {}).join();  // after the first thread, shared counts are atomic
  std::printf(
      "operation, uncontended, ns: lock and unlock %.1f; full barrier %.1f; atomic exchange "
      "%.1f; shared owner copied and dropped %.1f; clock read %.1f\n",
      ns_each([&] { const std::lock_guard lock(mutex); }), ns_each([&] {
        word.store(1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
      }),
      ns_each([&] { word.exchange(1); }), ns_each([&] { auto copy = owner; }),
      ns_each([] { (void)peer::Clock::now(); }));
}

struct Percentiles {
  double p25, p50, p75;
};
Percentiles percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
}

void print_case(const Case& which, const std::vector<Hop>& hops, double per_ns, double stamp_cost) {
  std::printf("\n%s, one way, ns: p50 (p25..p75) over %zu hand-overs\n", which.name, hops.size());
  double sum = 0;
  const auto print = [&](const Step& step) {
    std::vector<double> took;
    for (const Hop& hop : hops) {
      // A message that had arrived before the first look was not waited for.
      if (hop[static_cast<std::size_t>(step.from)] == 0 ||
          hop[static_cast<std::size_t>(step.to)] == 0)
        continue;
      const auto ticks = static_cast<std::int64_t>(hop[static_cast<std::size_t>(step.to)] -
                                                   hop[static_cast<std::size_t>(step.from)]);
      took.push_back(std::max(0.0, static_cast<double>(ticks) / per_ns - stamp_cost));
    }
    const Percentiles p = percentiles(std::move(took));
    std::printf("  %-9s %-52s %6.0f (%.0f..%.0f)\n", step.side, step.what, p.p50, p.p25, p.p75);
    return p.p50;
  };
  for (const Step& step : kSteps)
    if (step.way.value_or(which.way) == which.way) sum += print(step);
  std::printf("  %-9s %-52s %6.0f\n", "both", "together", sum);
  (void)print({Stage::shown, Stage::looked_at_sleep, "sender", "meanwhile: barrier, sleep word"});
  (void)print({Stage::looked_at_sleep, Stage::sent, "sender", "meanwhile: returns, counted"});
}

void measure(const Case& which, double per_ns, double stamp_cost) {
  const peer::Words words;
  int ends[2];
  if (pipe(ends) != 0) peer::fail_errno("pipe");
  std::fflush(stdout);
  const pid_t child = peer::spawn([&] { echo(words, ends[1], which); });
  close(ends[1]);
  const std::string address = words.read_text();
  std::vector<StageStamp> mine;
  mine.reserve(kRounds * kStampsOfRound);
  std::vector<StageStamp> theirs;
  {
    Context context = Context::create(options()).value();
    Pipe pipe = Pipe::connect(context, address, kDeadline).value();
    std::thread([&] {
      peer::pin_to_core(0);
      End end(pipe, which);
      for (std::size_t i = 0; i < kWarmUp + kRounds; ++i) {
        if (i == kWarmUp) tendon::detail::stage_stamps = &mine;
        end.send();
        end.recv();
      }
    }).join();
    theirs = read_stamps(ends[0]);
  }
  close(ends[0]);
  peer::reap(child);
  std::vector<Hop> hops(2 * kRounds);
  add(mine, Stage::begun, Stage::sent, 0, hops);
  add(theirs, Stage::seen, Stage::released, 0, hops);
  add(theirs, Stage::begun, Stage::sent, 1, hops);
  add(mine, Stage::seen, Stage::released, 1, hops);
  print_case(which, hops, per_ns, stamp_cost);
}

}  // namespace

int main() {
  const double per_ns = ticks_per_ns();
  const double stamp_cost = stamp_ns();
  std::printf("%s; a time stamp takes %.1f ns, taken off each step\n", peer::cpu_model().c_str(),
              stamp_cost);
  print_operations();
  for (const Case& which : kCases) measure(which, per_ns, stamp_cost);
}
#endif
