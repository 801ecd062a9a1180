// SPDX-License-Identifier: Apache-2.0
//
// A step to all workers and back: `--by tendon` is Controller and Worker, `--by zmq` the same
// sockets alone (XPUB to SUB, PUSH to PULL over ipc), without numbers, rosters and resending. Every
// worker returns what it got; the time is from the first call until the outputs of the last stage
// are there.
#include <array>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>
#include <zmq.hpp>

#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Storage;

constexpr auto kLimit = 60s;
constexpr std::size_t kAddressBytes = 64;

/// Workers stand one behind the other in the pipeline: all take the inputs, the last gives outputs.
tendon::ParallelLayout layout_of(std::uint32_t workers) {
  return tendon::ParallelLayout::make({.pipeline = workers}).value();
}

[[noreturn]] void work(const std::string& address, std::uint32_t workers, std::uint32_t rank) {
  Context context = Context::create().value();
  tendon::Worker worker =
      tendon::Worker::connect(context, address, layout_of(workers), {rank}, kLimit).value();
  while (true) {
    const auto step = worker.next_step(kLimit);
    if (!step.has_value()) std::exit(0);
    worker
        .send_outputs({.schedule_id = step->inputs.schedule_id, .payload = step->inputs.payload},
                      kLimit)
        .value();
  }
}

void measure_tendon(std::uint32_t workers, std::size_t size_bytes, std::size_t warm_up,
                    std::vector<double>& samples_us) {
  // Before this process has threads.
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) peer::fail_errno("pipe");
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    children.push_back(peer::spawn([&] {
      std::array<char, kAddressBytes> address{};
      if (read(ends[0], address.data(), address.size()) != kAddressBytes) peer::fail_errno("read");
      work(address.data(), workers, rank);
    }));
  }
  Context context = Context::create().value();
  auto controller = tendon::Controller::bind(context, layout_of(workers), "127.0.0.1:0").value();
  std::array<char, kAddressBytes> address{};
  controller.address().copy(address.data(), address.size() - 1);
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    if (write(ends[1], address.data(), address.size()) != kAddressBytes) peer::fail_errno("write");
  }
  controller.wait_for_workers(kLimit).value();
  const Storage payload = Storage::allocate(size_bytes).value();
  std::memset(payload.data(), 1, size_bytes);
  for (std::size_t i = 0; i < warm_up + samples_us.size(); ++i) {
    const auto begun = peer::Clock::now();
    controller.broadcast({.schedule_id = i + 1, .payload = payload}, kLimit).value();
    (void)controller.collect(i + 1, kLimit).value();
    if (i >= warm_up) samples_us[i - warm_up] = peer::elapsed_us(begun, peer::Clock::now());
  }
  controller.stop("measured", kLimit).value();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}

[[noreturn]] void work_bare(const std::string& name, bool last) {
  zmq::context_t context(1);
  zmq::socket_t inputs(context, zmq::socket_type::sub);
  inputs.set(zmq::sockopt::subscribe, "");
  inputs.connect(name + ".inputs");
  zmq::socket_t outputs(context, zmq::socket_type::push);
  outputs.connect(name + ".outputs");
  while (true) {
    zmq::message_t message;
    (void)inputs.recv(message);
    if (message.size() == 0) std::exit(0);
    if (last) (void)outputs.send(message, zmq::send_flags::none);
  }
}

void measure_zmq(std::uint32_t workers, std::size_t size_bytes, std::size_t warm_up,
                 std::vector<double>& samples_us) {
  const std::string name = "ipc:///tmp/tendon-bench-steps-" + std::to_string(getpid());
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    children.push_back(peer::spawn([&] { work_bare(name, rank + 1 == workers); }));
  }
  zmq::context_t context(1);
  zmq::socket_t inputs(context, zmq::socket_type::xpub);
  inputs.set(zmq::sockopt::xpub_nodrop, true);
  inputs.set(zmq::sockopt::xpub_verbose, true);  // each subscription is told
  inputs.bind(name + ".inputs");
  zmq::socket_t outputs(context, zmq::socket_type::pull);
  outputs.bind(name + ".outputs");
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    zmq::message_t subscription;
    (void)inputs.recv(subscription);
  }
  const std::vector<std::byte> payload(size_bytes, std::byte{1});
  for (std::size_t i = 0; i < warm_up + samples_us.size(); ++i) {
    const auto begun = peer::Clock::now();
    (void)inputs.send(zmq::const_buffer(payload.data(), payload.size()), zmq::send_flags::none);
    zmq::message_t message;
    (void)outputs.recv(message);
    if (i >= warm_up) samples_us[i - warm_up] = peer::elapsed_us(begun, peer::Clock::now());
  }
  (void)inputs.send(zmq::const_buffer("", 0), zmq::send_flags::none);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(
      argc, argv, {.begin_bytes = 1024, .iterations = 5000}, {"--by", "--workers"});
  const std::string by = options.extra_or("--by", "tendon");
  if (by != "tendon" && by != "zmq") peer::fail("--by: tendon or zmq");
  const auto workers =
      static_cast<std::uint32_t>(peer::parse_size("--workers", options.extra_or("--workers", "1")));
  std::vector<double> samples_us(options.iterations);
  const std::size_t warm_up = options.warm_up_for(options.begin_bytes);
  (by == "tendon" ? measure_tendon : measure_zmq)(workers, options.begin_bytes, warm_up,
                                                  samples_us);
  peer::Result result =
      peer::summarize("steps", by + " " + std::to_string(workers), options.begin_bytes, samples_us);
  result.rate_gb_per_s = 0;
  peer::print_json("control_steps", std::span(&result, 1));
}
