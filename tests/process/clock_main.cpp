// SPDX-License-Identifier: Apache-2.0
// Contexts of one process whose clock is set while they use pipes, groups and nodes. This program
// replaces the functions of libc that read a clock or wait by it. `clock_main wall|steady` says
// which one jumps.
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <iostream>
#include <string>
#include <string_view>
#include <tendon/fabric/node.hpp>
#include <tendon/group/group.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"

namespace {

std::atomic<std::int64_t> wall_offset_s{0};
std::atomic<std::int64_t> steady_offset_s{0};
// Counts the reads of the wall clock, and the waits until a time that it shows.
std::atomic<std::uint64_t> wall_uses{0};

std::int64_t wall_seconds() {
  timespec now{};
  wall_uses.fetch_add(1);
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return now.tv_sec + wall_offset_s;
}

}  // namespace

extern "C" {
int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto status = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
    now->tv_sec = wall_seconds();
  else if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME)
    now->tv_sec += steady_offset_s;
  return status;
}
time_t time(time_t* now) noexcept {
  const time_t seconds = wall_seconds();
  if (now != nullptr) *now = seconds;
  return seconds;
}
int gettimeofday(timeval* now, void*) noexcept {
  *now = {wall_seconds(), 0};
  return 0;
}
// A wait by the wall clock fails at once.
int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*) {
  wall_uses.fetch_add(1);
  return EINVAL;
}
int pthread_mutex_timedlock(pthread_mutex_t*, const timespec*) noexcept {
  wall_uses.fetch_add(1);
  return EINVAL;
}
int sem_timedwait(sem_t*, const timespec*) {
  wall_uses.fetch_add(1);
  errno = EINVAL;
  return -1;
}
}

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// The clock that jumps, and how far. A lease that used that clock would lapse.
struct Jumps {
  std::atomic<std::int64_t>& offset_s;
  std::int64_t step_s;
  std::chrono::milliseconds lease;
};

/// Ends the program with the reason.
void require(bool fact, std::string_view what) {
  if (fact) return;
  std::cout << "error " << what << std::endl;
  _exit(1);
}
template <class T>
T taken(Result<T> result, std::string_view what) {
  if (!result) require(false, std::string(what) + ": " + result.error().message());
  return *std::move(result);
}
void done(const Result<void>& result, std::string_view what) {
  if (!result) require(false, std::string(what) + ": " + result.error().message());
}

void talk(Context& client_context, Listener& listener, Pipe& client, Pipe& server) {
  // Long enough for a check of the leases.
  const auto nothing = server.recv(1200ms);
  require(!nothing && nothing.error().code == ErrorCode::timeout,
          nothing ? "recv answered without a message" : nothing.error().message());
  for (std::uint64_t n = 0; n < 3; ++n) {
    done(client.send(patterned(n, 100'000), kPatience), "send");
    const auto batch = taken(server.recv(kPatience), "recv");
    require(bool(is_patterned(batch, n, 100'000)), "other bytes arrived");
  }
  auto coming = server.recv_async();
  done(client.send_async(numbered(5)).wait(kPatience), "send_async");
  require(number_of(taken(coming.wait(kPatience), "recv_async")) == 5, "another number arrived");
  Pipe another = taken(Pipe::connect(client_context, listener.address(), kPatience), "connect");
  Pipe accepted = taken(listener.accept(kPatience), "accept");
  done(another.close(kPatience), "close");
}

void pipes(const Jumps& jumps, Transport transport) {
  const ContextOptions options{.transport = transport, .lease = jumps.lease};
  Context server_context = taken(Context::create(options), "create");
  Context client_context = taken(Context::create(options), "create");
  Listener listener = taken(Listener::bind(server_context, "127.0.0.1:0"), "bind");
  Pipe client = taken(Pipe::connect(client_context, listener.address(), kPatience), "connect");
  Pipe server = taken(listener.accept(kPatience), "accept");
  const std::uint64_t before = wall_uses;
  for (const std::int64_t offset : {jumps.step_s, -jumps.step_s, std::int64_t{0}}) {
    jumps.offset_s = offset;
    talk(client_context, listener, client, server);
  }
  require(wall_uses == before, "the wall clock was asked");
}

void groups(const Jumps& jumps, Transport transport) {
  const std::string address = "unix:@tendon-clock-" + std::to_string(getpid()) + "-" +
                              std::to_string(static_cast<int>(transport));
  std::uint64_t before = 0;
  const auto member = [&](std::uint32_t rank) {
    Context context =
        taken(Context::create({.transport = transport, .lease = jumps.lease}), "create");
    Group group =
        taken(Group::join(context, Rendezvous::at(address, GroupRank{rank}, 2), kPatience), "join");
    for (const std::int64_t offset : {std::int64_t{0}, jumps.step_s, -jumps.step_s}) {
      if (rank == 0) jumps.offset_s = offset;
      Tensor values = Tensor::zeros(DType::f32, Shape({100'000})).value();
      for (int i = 0; i < 20; ++i) done(group.all_reduce(values, ReduceOp::sum, kPatience), "sum");
      done(group.barrier(kPatience), "barrier");
      if (rank == 0 && offset == 0) before = wall_uses;
    }
    if (rank == 0) require(wall_uses == before, "the wall clock was asked by a group");
    done(group.barrier(kPatience), "barrier");
  };
  std::thread other([&] { member(1); });
  member(0);
  other.join();
}

// A subscriber gets a sample that is young enough, and another gets none, whatever the wall clock
// says.
void nodes(const Jumps& jumps, Transport transport) {
  const ContextOptions options{.transport = transport, .lease = jumps.lease};
  Context vision_context = taken(Context::create(options), "create");
  Context motor_context = taken(Context::create(options), "create");
  Node vision = taken(Node::join(vision_context,
                                 {.domain = "clock",
                                  .name = "vision",
                                  .peers = std::vector<std::string>{},
                                  .listen = "127.0.0.1:0"},
                                 kPatience),
                      "join");
  Node motor = taken(
      Node::join(
          motor_context,
          {.domain = "clock", .name = "motor", .peers = std::vector<std::string>{vision.address()}},
          kPatience),
      "join");
  Publisher publisher = taken(Publisher::declare(vision, "count"), "declare");
  Subscriber young = taken(Subscriber::declare(motor, "count", {.max_age = 10s}), "declare");
  Subscriber none = taken(Subscriber::declare(motor, "count", {.max_age = 1ns}), "declare");
  done(publisher.wait_for_subscribers(2, kPatience), "wait_for_subscribers");
  const std::uint64_t before = wall_uses;
  std::int64_t number = 0;
  for (const std::int64_t offset : {jumps.step_s, -jumps.step_s, std::int64_t{0}}) {
    jumps.offset_s = offset;
    for (int n = 0; n < 3; ++n) {
      taken(publisher.publish(numbered(++number)), "publish");
      const Sample sample = taken(young.recv(kPatience), "recv");
      require(number_of(*sample.tensors) == number && sample.gaps.empty(), "a sample was missed");
    }
    const auto nothing = none.recv(50ms);
    require(!nothing && nothing.error().code == ErrorCode::timeout, "an old sample came");
  }
  require(wall_uses == before, "the wall clock was asked by nodes");
}

int run(std::string_view which) {
  const std::uint64_t unused = wall_uses;
  (void)std::chrono::system_clock::now();
  require(wall_uses == unused + 1, "the clock of libstdc++ is not the one of this program");
  // A wait by the steady clock returns after a jump of seconds.
  const Jumps jumps = which == "wall" ? Jumps{wall_offset_s, 400 * 24 * 3600, 60s}
                                      : Jumps{steady_offset_s, 5, 500ms};
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    pipes(jumps, transport);
    groups(jumps, transport);
    nodes(jumps, transport);
  }
  std::cout << "ok" << std::endl;
  return 0;
}

}  // namespace
}  // namespace tendon::test

int main(int argc, char** argv) { return argc == 2 ? tendon::test::run(argv[1]) : 2; }
