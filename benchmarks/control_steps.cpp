// SPDX-License-Identifier: Apache-2.0
//
// Sends a step to all workers and collects the outputs. `--by tendon` uses Controller and Worker.
// `--by zmq` uses the same sockets alone (XPUB to SUB, PUSH to PULL over ipc), without numbers,
// rosters and resending. `--by ring` uses a ring in shared memory at which every process spins,
// like vLLM's message queue for one host. Every worker returns its inputs; the time runs from the
// first call until the outputs of the last stage have arrived.
#include <sys/mman.h>

#include <atomic>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>
#include <zmq.hpp>

#include "core/pause.hpp"
#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Storage;

constexpr auto kLimit = 60s;

/// Each worker is a pipeline stage: all of them take the inputs, and the last one returns outputs.
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
  // Made before this process has threads.
  const peer::Words words;
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    children.push_back(peer::spawn([&] { work(words.read_text(), workers, rank); }));
  }
  Context context = Context::create().value();
  auto controller = tendon::Controller::bind(context, layout_of(workers), "127.0.0.1:0").value();
  for (std::uint32_t rank = 0; rank < workers; ++rank) words.write_text(controller.address());
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
  inputs.set(zmq::sockopt::xpub_verbose, true);  // each subscription is reported
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

/// A ring with one writer, which overwrites a slot after all readers have read it. A wait spins,
/// and yields the CPU now and then in case there are fewer CPUs than processes.
class Ring {
 public:
  static constexpr std::uint64_t kSlots = 8;

  Ring(std::size_t readers, std::size_t size_bytes)
      : readers_(readers), size_bytes_(size_bytes), counts_(map<Count>(readers + 1)) {
    slots_ = map<std::byte>(kSlots * size_bytes);
  }

  void write(const std::byte* data) {
    const std::uint64_t next = counts_[0].value.load(std::memory_order_relaxed);
    for (std::size_t reader = 1; reader <= readers_; ++reader)
      wait_for(counts_[reader], next < kSlots ? 0 : next - kSlots + 1);
    std::memcpy(slots_ + next % kSlots * size_bytes_, data, size_bytes_);
    counts_[0].value.store(next + 1, std::memory_order_release);
  }
  /// Copies the message to `to`, which outlives the slot.
  void read(std::size_t reader, std::byte* to) {
    Count& mine = counts_[reader + 1];
    const std::uint64_t next = mine.value.load(std::memory_order_relaxed);
    wait_for(counts_[0], next + 1);
    std::memcpy(to, slots_ + next % kSlots * size_bytes_, size_bytes_);
    mine.value.store(next + 1, std::memory_order_release);
  }

 private:
  struct alignas(64) Count {
    std::atomic<std::uint64_t> value{0};
  };

  // Maps memory that later forked children share.
  template <class T>
  static T* map(std::size_t count) {
    void* const memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) peer::fail_errno("mmap");
    return static_cast<T*>(memory);
  }
  static void wait_for(const Count& count, std::uint64_t value) {
    constexpr std::uint32_t kSpins = 1000;
    for (std::uint32_t spins = 0; count.value.load(std::memory_order_acquire) < value; ++spins) {
      tendon::detail::pause_briefly();
      if (spins % kSpins == kSpins - 1) sched_yield();
    }
  }

  const std::size_t readers_;
  const std::size_t size_bytes_;
  Count* const counts_;  // the writer's, then the readers'
  std::byte* slots_;
};

void measure_ring(std::uint32_t workers, std::size_t size_bytes, std::size_t warm_up,
                  std::vector<double>& samples_us) {
  Ring inputs(workers, size_bytes);
  Ring outputs(1, size_bytes);
  const std::size_t steps = warm_up + samples_us.size();
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    children.push_back(peer::spawn([&] {
      std::vector<std::byte> payload(size_bytes);
      for (std::size_t i = 0; i < steps; ++i) {
        inputs.read(rank, payload.data());
        if (rank + 1 == workers) outputs.write(payload.data());
      }
      std::exit(0);
    }));
  }
  std::vector<std::byte> payload(size_bytes, std::byte{1});
  for (std::size_t i = 0; i < steps; ++i) {
    const auto begun = peer::Clock::now();
    inputs.write(payload.data());
    outputs.read(0, payload.data());
    if (i >= warm_up) samples_us[i - warm_up] = peer::elapsed_us(begun, peer::Clock::now());
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(
      argc, argv, {.begin_bytes = 1024, .iterations = 5000}, {"--by", "--workers"});
  const std::string by = options.extra_or("--by", "tendon");
  if (by != "tendon" && by != "zmq" && by != "ring") peer::fail("--by: tendon, zmq or ring");
  const auto workers =
      static_cast<std::uint32_t>(peer::parse_size("--workers", options.extra_or("--workers", "1")));
  std::vector<double> samples_us(options.iterations);
  const std::size_t warm_up = options.warm_up_for(options.begin_bytes);
  const auto measure = by == "tendon" ? measure_tendon : by == "zmq" ? measure_zmq : measure_ring;
  measure(workers, options.begin_bytes, warm_up, samples_us);
  peer::Result result =
      peer::summarize("steps", by + " " + std::to_string(workers), options.begin_bytes, samples_us);
  result.rate_gb_per_s = 0;
  peer::print_json("control_steps", std::span(&result, 1));
}
