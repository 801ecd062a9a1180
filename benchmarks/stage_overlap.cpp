// SPDX-License-Identifier: Apache-2.0
//
// Compares two pipeline stages that compute while microbatches travel with stages that wait for
// each transfer at once. It runs as ranks of a launcher (tools/bench_network.py --only overlap);
// the first half of the ranks is the first stage. Computing is a sleep here, like that of a program
// whose accelerator computes. It lasts as long as one transfer on these links, which is measured
// first, until the sender has the receiver's answer. Rank 0 prints the rows, with the times of the
// slowest rank. `compute` is the larger of all microbatches' computing and wire time. `overlapped`
// and `at_once` are runs of the microbatches, without the first one's way to the second stage.
// There are `-n` microbatches of `-b` bytes.
#include <algorithm>
#include <functional>
#include <optional>
#include <tendon/group/group.hpp>
#include <tendon/group/stage.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Completion;
using tendon::Group;
using tendon::GroupRank;
using tendon::Tensor;

constexpr auto kLimit = 60s;
constexpr std::size_t kTrials = 5;

struct Stages {
  Group all;
  Group own;
  bool sends;
  GroupRank peer;
};

Stages split(tendon::Context& context) {
  Group all = Group::join(context, tendon::Rendezvous::from_environment(), kLimit,
                          {.security = {tendon::Profile::plaintext}})
                  .value();
  const std::uint32_t half = all.size() / 2;
  const std::uint32_t rank = all.rank().value;
  const bool sends = rank < half;
  std::vector<tendon::GlobalRank> mine;
  for (std::uint32_t i = 0; i < half; ++i) mine.push_back({sends ? i : i + half});
  Group own = all.split(mine, kLimit, "stage").value();
  return {std::move(all), std::move(own), sends, GroupRank{sends ? rank + half : rank - half}};
}

double of_slowest(Group& all, double value) {
  const Tensor worst = Tensor::of<double>({1}, {value});
  all.all_reduce(worst, tendon::ReduceOp::max, kLimit).value();
  return worst.span<const double>()[0];
}

/// Returns the time of `work` on the slowest rank.
double timed_us(Stages& stages, const std::function<void()>& work) {
  stages.all.barrier(kLimit).value();
  const auto begin = peer::Clock::now();
  work();
  return of_slowest(stages.all, peer::elapsed_us(begin, peer::Clock::now()));
}

void answer(Stages& stages) {
  const Tensor nothing = Tensor::zeros(tendon::DType::u8, {1}).value();
  if (stages.sends)
    stages.all.recv(nothing, {stages.peer}, kLimit).value();
  else
    stages.all.send(nothing, {stages.peer}, kLimit).value();
}

void transfer(Stages& stages, const Tensor& tensor) {
  if (stages.sends)
    tendon::send_to_stage(stages.all, stages.own, tensor, stages.peer, kLimit).value();
  else
    tendon::recv_from_stage(stages.all, stages.own, tensor, stages.peer, kLimit).value();
}

double wire_us(Stages& stages, const Tensor& tensor) {
  std::vector<double> trials(kTrials);
  for (double& trial : trials) {
    trial = timed_us(stages, [&] {
      transfer(stages, tensor);
      answer(stages);
    });
  }
  std::sort(trials.begin(), trials.end());
  return trials[kTrials / 2];
}

/// Uses two tensors in turn: one is computed while the other travels.
class Pipeline {
 public:
  Pipeline(Stages& stages, std::size_t size_bytes, std::chrono::microseconds compute)
      : stages_(stages), compute_(compute) {
    for (Tensor& tensor : tensors_)
      tensor = Tensor::zeros(tendon::DType::u8, {static_cast<std::int64_t>(size_bytes)}).value();
  }

  void at_once(std::size_t microbatches) {
    for (std::size_t k = 0; k < microbatches; ++k) {
      if (stages_.sends) {
        compute(k);
        transfer(stages_, tensors_[0]);
        answer(stages_);
      } else {
        transfer(stages_, tensors_[0]);
        answer(stages_);
        compute(k);
      }
    }
  }

  void overlapped(std::size_t microbatches) {
    if (!stages_.sends) start(0);
    for (std::size_t k = 0; k < microbatches; ++k) {
      if (stages_.sends) {
        // Waits for the tensor's last transfer before it is computed again.
        wait(k);
        compute(k);
        start(k);
      } else {
        wait(k);
        if (k + 1 < microbatches) start(k + 1);
        compute(k);
      }
    }
    for (auto& each : under_way_)
      if (each) std::exchange(each, std::nullopt)->wait(kLimit).value();
  }

 private:
  void compute(std::size_t k) {
    std::this_thread::sleep_for(compute_);
    auto* const bytes = const_cast<std::byte*>(tensors_[k % 2].data());
    bytes[0] = std::byte{1};
  }
  void start(std::size_t k) {
    under_way_[k % 2].emplace(
        stages_.sends
            ? send_to_stage_async(stages_.all, stages_.own, tensors_[k % 2], stages_.peer)
            : recv_from_stage_async(stages_.all, stages_.own, tensors_[k % 2], stages_.peer));
  }
  void wait(std::size_t k) {
    auto& one = under_way_[k % 2];
    if (one) std::exchange(one, std::nullopt)->wait(kLimit).value();
  }

  Stages& stages_;
  std::chrono::microseconds compute_;
  Tensor tensors_[2];
  std::optional<Completion<void>> under_way_[2];
};

peer::Result row(std::string mode, std::size_t size_bytes, double time_us) {
  std::vector<double> one = {time_us};
  return peer::summarize("overlap", std::move(mode), size_bytes, one);
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options =
      peer::parse_options(argc, argv, {.begin_bytes = std::size_t{16} << 20, .iterations = 12});
  tendon::Context context = tendon::Context::create().value();
  Stages stages = split(context);
  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) {
    const Tensor tensor =
        Tensor::zeros(tendon::DType::u8, {static_cast<std::int64_t>(size_bytes)}).value();
    const double wire = wire_us(stages, tensor);
    const auto compute = std::chrono::microseconds(static_cast<std::int64_t>(wire));
    const double fill = 2 * wire;
    Pipeline pipeline(stages, size_bytes, compute);
    const double overlapped =
        timed_us(stages, [&] { pipeline.overlapped(options.iterations); }) - fill;
    const double at_once = timed_us(stages, [&] { pipeline.at_once(options.iterations); }) - fill;
    const double least = wire * static_cast<double>(options.iterations);
    results.push_back(row("compute", size_bytes, least));
    results.push_back(row("overlapped", size_bytes, overlapped));
    results.push_back(row("at_once", size_bytes, at_once));
  }
  if (stages.all.rank().value == 0) peer::print_json("stage_overlap", results);
  stages.all.barrier(kLimit).value();
}
