// SPDX-License-Identifier: Apache-2.0
// A worker, or a controller, of a layout of N tensor-parallel ranks, in a process of its own:
//   worker_main worker ADDRESS N RANK               obeys the payload of each step
//   worker_main worker ADDRESS N RANK plaintext MS  the same between hosts, with this lease
//   worker_main controller N PAYLOAD...             sends these steps, then waits
// It prints "ready", then "joined", "step ...", "failed <code> <detail>", "end <code> <detail>",
// line by line.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>

#include "support/expect.hpp"
#include "support/storage_of.hpp"

using namespace tendon;
using test::storage_of;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 60s;

void say(std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::cout << line << std::endl;
}
void say(const std::string& what, const Error& error) {
  say(what + " " + std::string(to_string(error.code)) + " " + error.detail);
}

/// "reduce": the sum of rank + 1 over all members. "reduce without R": rank R reports and then
/// sleeps for ever; the call of the others ends with it. "reduce when told": reports, and reads a
/// line before the call. "reduce much when told": 8 MiB, more than can be under way without the
/// member that takes it. "epoch": the number of the world group's epoch.
Result<std::int64_t> compute(Worker& worker, const std::string& payload) {
  if (payload == "reduce without " + std::to_string(worker.rank().value)) {
    say("sleeps");
    while (true) pause();
  }
  if (payload == "epoch") return static_cast<std::int64_t>(worker.groups().world->epoch_number());
  const bool much = payload == "reduce much when told";
  if (much || payload == "reduce when told") {
    say("begun");
    std::string line;
    std::getline(std::cin, line);
  }
  const Tensor tensor = Tensor::zeros(DType::i64, {much ? 1 << 20 : 1}).value();
  std::ranges::fill(tensor.span<std::int64_t>(),
                    static_cast<std::int64_t>(worker.rank().value) + 1);
  TENDON_CHECK(worker.groups().tensor->all_reduce(tensor, ReduceOp::sum, kPatience));
  return tensor.span<const std::int64_t>()[0];
}

int run_worker(const std::string& address, std::uint32_t size, std::uint32_t rank, Profile profile,
               std::chrono::milliseconds lease) {
  Context context =
      Context::create({.name = "worker " + std::to_string(rank), .lease = lease}).value();
  const ParallelLayout layout = ParallelLayout::make({.tensor = size}).value();
  auto worker =
      Worker::connect(context, address, layout, {rank}, kPatience, {.security = {profile}});
  if (!worker.has_value()) {
    say("end", worker.error());
    return 1;
  }
  say("joined");
  while (true) {
    const Result<Step> step = worker->next_step(Deadline::never());
    Error why;
    if (step.has_value()) {
      const auto sum = compute(*worker, std::string(as_text(step->inputs.payload.bytes())));
      if (sum.has_value()) {
        say("step " + std::to_string(step->inputs.schedule_id) + " " + std::to_string(*sum));
        const auto sent = worker->send_outputs(
            {.schedule_id = step->inputs.schedule_id, .payload = storage_of(std::to_string(*sum))},
            kPatience);
        if (sent.has_value()) continue;
        why = sent.error();
      } else {
        why = sum.error();
      }
    } else {
      why = step.error();
    }
    if (why.code == ErrorCode::end_of_stream) break;
    say("failed", why);
    if (const auto entered = worker->rebuild(why, kPatience); !entered.has_value()) {
      say("end", entered.error());
      return 1;
    }
    say("roster " + std::to_string(worker->roster()));
  }
  say("end end_of_stream");
  return 0;
}

int run_controller(std::uint32_t size, const std::vector<std::string>& payloads) {
  Context context = Context::create({.name = "controller"}).value();
  const ParallelLayout layout = ParallelLayout::make({.tensor = size}).value();
  Controller controller = Controller::bind(context, layout, "127.0.0.1:0").value();
  say(controller.address());
  controller.wait_for_workers(kPatience).value();
  std::uint64_t schedule_id = 0;
  for (const std::string& payload : payloads) {
    controller.broadcast({.schedule_id = ++schedule_id, .payload = storage_of(payload)}, kPatience)
        .value();
    say("given out");
  }
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  say("ready");
  if ((arguments.size() == 4 || arguments.size() == 6) && arguments[0] == "worker") {
    const bool between_hosts = arguments.size() == 6;
    return run_worker(
        arguments[1], static_cast<std::uint32_t>(std::stoul(arguments[2])),
        static_cast<std::uint32_t>(std::stoul(arguments[3])),
        between_hosts ? Profile::plaintext : Profile::local,
        between_hosts ? std::chrono::milliseconds(std::stoul(arguments[5])) : test::kLongLease);
  }
  if (arguments.size() >= 2 && arguments[0] == "controller") {
    return run_controller(static_cast<std::uint32_t>(std::stoul(arguments[1])),
                          {arguments.begin() + 2, arguments.end()});
  }
  std::cerr << "usage: see the first lines of worker_main.cpp\n";
  return 2;
}
