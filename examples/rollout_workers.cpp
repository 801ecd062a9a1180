// SPDX-License-Identifier: Apache-2.0
// A learner and three rollout workers, each a process of its own. In every round the learner sends
// its weights to all workers, and each plays a rollout with them. The learner then moves its
// weights half way to the mean of the results. A worker knows only the address; it ends when the
// learner ends the stream.
//
// Prints:
// round 0: 3 rollouts of 128 steps, distance to the goal 1
// round 1: 3 rollouts of 128 steps, distance to the goal 0.5
// round 2: 3 rollouts of 128 steps, distance to the goal 0.25
// round 3: 3 rollouts of 128 steps, distance to the goal 0.125
// all workers ended in order
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <tendon/tendon.hpp>
#include <vector>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr int kWorkers = 3;
constexpr int kRounds = 4;
constexpr std::int64_t kSteps = 128;
constexpr std::int64_t kWeights = 4096;
constexpr float kGoal = 1;

// Stands in for an environment: a worker sees the goal with an offset of its own; the offsets of
// all workers sum to zero.
TensorDict play(const TensorDict& weights, std::int64_t worker) {
  const float seen = kGoal + static_cast<float>(worker - kWorkers / 2) / 4;
  const auto policy = weights["policy"].span<const float>();
  TensorDict rollout(Shape{kSteps});
  Tensor reward = Tensor::empty(DType::f32, {kSteps}).value();
  std::ranges::fill(reward.span<float>(), -std::abs(seen - policy[0]));
  Tensor found = Tensor::empty(DType::f32, {kSteps, kWeights}).value();
  std::ranges::fill(found.span<float>(), seen);
  rollout.set("reward", reward);
  rollout.set("found", found);
  rollout.set("worker", worker);
  rollout.set("version", weights.value("version"));
  return rollout;
}

void work(std::string_view address, std::int64_t worker) {
  Context context = Context::create({.name = "worker" + std::to_string(worker)}).value();
  Pipe pipe = Pipe::connect(context, address, 10s).value();
  for (Result<TensorDict>& weights : pipe.each(30s)) {
    pipe.send(play(weights.value(), worker), 10s).value();
  }
}

// Moves the weights half way to the mean of the rollouts' results.
void learn(const std::vector<TensorDict>& rollouts, std::span<float> policy, std::int64_t version) {
  for (const TensorDict& rollout : rollouts) {
    const std::int64_t played = rollout.value("version").as_i64();
    if (played == version) continue;
    throw Exception({ErrorCode::internal, "rollout_workers",
                     "a rollout of weights " + std::to_string(played) + " came in round " +
                         std::to_string(version)});
  }
  for (std::size_t i = 0; i < policy.size(); ++i) {
    float sum = 0;
    for (const TensorDict& rollout : rollouts)
      sum += rollout["found"].item<float>({kSteps - 1, static_cast<std::int64_t>(i)});
    policy[i] += (sum / static_cast<float>(rollouts.size()) - policy[i]) / 2;
  }
}

void lead(Listener& listener) {
  std::vector<Pipe> workers;
  for (int i = 0; i < kWorkers; ++i) workers.push_back(listener.accept(10s).value());

  TensorDict weights;
  weights.set("policy", Tensor::zeros(DType::f32, {kWeights}).value());
  const auto policy = weights["policy"].span<float>();
  for (std::int64_t round = 0; round < kRounds; ++round) {
    std::cout << "round " << round << ": ";
    weights.set("version", round);
    for (Pipe& pipe : workers) pipe.send(weights, 10s).value();
    std::vector<TensorDict> rollouts;
    for (Pipe& pipe : workers) rollouts.push_back(pipe.recv(10s).value());
    std::cout << rollouts.size() << " rollouts of " << rollouts[0].batch_size()[0]
              << " steps, distance to the goal " << kGoal - policy[0] << "\n";
    learn(rollouts, policy, round);
  }
  for (Pipe& pipe : workers) pipe.close(10s).value();
}

pid_t start_worker(std::string address, int worker) {
  std::string program = "/proc/self/exe";
  std::string number = std::to_string(worker);
  char* const arguments[] = {program.data(), address.data(), number.data(), nullptr};
  pid_t child = -1;
  const int failure = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (failure != 0) throw Exception(system_error("rollout_workers", "posix_spawn", failure));
  return child;
}

int run() {
  Context context = Context::create({.name = "learner"}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  std::vector<pid_t> children;
  for (int i = 0; i < kWorkers; ++i) children.push_back(start_worker(listener.address(), i));
  lead(listener);
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) ++failed;
  }
  if (failed != 0) return 1;
  std::cout << "all workers ended in order\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) return run();
    work(argv[1], std::stoi(argv[2]));
    return 0;
  } catch (const Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return error_info(failure.code()).exit_code;
  }
}
