// SPDX-License-Identifier: Apache-2.0
// Microbatches travel while stages compute. Two stages run on separate hosts, whose wire takes as
// long for a microbatch as a stage computes. This is the only test that compares times, and only
// with TENDON_TEST_LONG; benchmarks/stage_overlap.cpp measures the same.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <tendon/group/group.hpp>
#include <tendon/group/stage.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "process/network.hpp"
#include "process/peer.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMicrobatches = 8;
constexpr std::int64_t kBytes = 8 << 20;
constexpr const char* kRate = "400mbit";

/// Waits like a program whose accelerator computes.
void accelerate(Clock::duration compute) {
  std::promise<void> never;
  (void)never.get_future().wait_for(compute);
}

/// One stage on one member.
class Stage {
 public:
  Stage(Group& all, Group& own) : all_(all), own_(own), sends_(all.rank().value == 0) {
    for (Tensor& tensor : tensors_) tensor = Tensor::zeros(DType::u8, {kBytes}).value();
  }
  /// The time that `work` takes on the slower stage.
  Clock::duration timed(const std::function<void()>& work) {
    EXPECT_TRUE(succeeds(all_.barrier(kPatience)));
    const auto begin = Clock::now();
    work();
    const Tensor took = Tensor::of<std::int64_t>({1}, {(Clock::now() - begin).count()});
    EXPECT_TRUE(succeeds(all_.all_reduce(took, ReduceOp::max, kPatience)));
    return Clock::duration(took.span<const std::int64_t>()[0]);
  }
  /// Sends, and waits until the sender has the receiver's answer.
  void move() {
    EXPECT_TRUE(succeeds(start(0).wait(kPatience)));
    const Tensor answer = Tensor::zeros(DType::u8, {1}).value();
    if (sends_)
      EXPECT_TRUE(succeeds(all_.recv(answer, {peer()}, kPatience)));
    else
      EXPECT_TRUE(succeeds(all_.send(answer, {peer()}, kPatience)));
  }
  void at_once(Clock::duration compute) {
    for (std::uint32_t k = 0; k < kMicrobatches; ++k) {
      if (sends_) accelerate(compute);
      move();
      if (!sends_) accelerate(compute);
    }
  }
  void overlapped(Clock::duration compute) {
    if (!sends_) under_way_[0].emplace(start(0));
    for (std::uint32_t k = 0; k < kMicrobatches; ++k) {
      finish(k);
      const std::uint32_t next = sends_ ? k : k + 1;
      if (sends_) accelerate(compute);
      if (next < kMicrobatches) under_way_[next % 2].emplace(start(next));
      if (!sends_) accelerate(compute);
    }
    for (const std::uint32_t k : {0U, 1U}) finish(k);
  }

 private:
  [[nodiscard]] GroupRank peer() const { return GroupRank{sends_ ? 1U : 0U}; }
  Completion<void> start(std::uint32_t k) {
    return sends_ ? send_to_stage_async(all_, own_, tensors_[k % 2], peer())
                  : recv_from_stage_async(all_, own_, tensors_[k % 2], peer());
  }
  void finish(std::uint32_t k) {
    auto& one = under_way_[k % 2];
    if (one) {
      EXPECT_TRUE(succeeds(std::exchange(one, std::nullopt)->wait(kPatience)));
    }
  }

  Group& all_;
  Group& own_;
  const bool sends_;
  std::array<Tensor, 2> tensors_;
  std::array<std::optional<Completion<void>>, 2> under_way_;
};

class Overlap : public ProcessTest {};

TEST_F(Overlap, MicrobatchesTravelWhileStagesCompute) {
  if (std::getenv("TENDON_TEST_LONG") == nullptr) GTEST_SKIP() << "TENDON_TEST_LONG is not set";
  if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
  const Network network(2);
  for (const std::uint32_t host : {0U, 1U})
    network.run(host, {"tc", "qdisc", "add", "dev", "net0", "root", "tbf", "rate", kRate, "burst",
                       "256kb", "limit", "4mb"});
  std::array<Clock::duration, 3> times{};  // of a transfer, and of both runs
  std::vector<std::thread> stages;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    stages.emplace_back([&, rank] {
      network.inside(rank, [&] {
        // Both are in this process, whose runtime directory proves one host.
        Context context =
            Context::create({.transport = Transport::tcp, .lease = kLongLease}).value();
        Group all =
            Group::join(context, Rendezvous::at(Network::address(0) + ":7702", GroupRank{rank}, 2),
                        kPatience, {.security = {Profile::plaintext}})
                .value();
        Group own = all.split(std::array{GlobalRank{rank}}, kPatience, "stage").value();
        Stage stage(all, own);
        const auto wire = stage.timed([&] { stage.move(); });
        const auto overlapped = stage.timed([&] { stage.overlapped(wire); });
        const auto at_once = stage.timed([&] { stage.at_once(wire); });
        if (rank == 0) times = {wire, overlapped, at_once};
      });
    });
  }
  for (std::thread& stage : stages) stage.join();
  const auto [wire, overlapped, at_once] = times;
  // Without the first microbatch's way to the second stage: 1 and 2, if nothing else took time.
  const auto microbatches = [&](Clock::duration time) {
    return static_cast<double>((time - 2 * wire).count()) /
           static_cast<double>((wire * kMicrobatches).count());
  };
  EXPECT_LT(microbatches(overlapped), 1.4);
  EXPECT_GT(microbatches(at_once), 1.6);
}

}  // namespace
}  // namespace tendon::test
