// SPDX-License-Identifier: Apache-2.0
// Measures the cost of waiting: ping-pong of 64 bytes by 1 and by 4 threads of one Context, each on
// a pipe of its own, with every policy on both paths. It also measures the CPU time of a Context
// with a link that is idle for 10 s. Each row has path, policy, threads, one way p50 and p99,
// messages a second.
//   build/release/benchmarks/waiting [seconds a row, 2 by default]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <vector>

#include "own_process.hpp"
#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using peer::Clock;
using tendon::Bytes;
using tendon::Context;
using tendon::Listener;
using tendon::Pipe;

constexpr std::size_t kThreads = 4;
constexpr std::size_t kBytes = 64;
const std::vector<std::byte> message(kBytes);

/// Runs in the other process: returns messages, on each pipe by a thread of its own.
[[noreturn]] void echo(const peer::Words& words, const tendon::ContextOptions& options) {
  Context context = Context::create(options).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  words.write_text(listener.address());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([pipe = listener.accept(30s).value()]() mutable {
      while (auto received = pipe.recv_message(tendon::Deadline::never()))
        if (!pipe.send(received->bytes.bytes(), {}, 30s)) break;
    });
  }
  for (std::thread& thread : threads) thread.join();
  _exit(0);
}

/// Returns one-way times in us.
std::vector<double> ping_pong(Pipe& pipe, Clock::duration time) {
  std::vector<double> times_us;
  const auto end = Clock::now() + time;
  for (auto now = Clock::now(); now < end;) {
    const auto begin = now;
    pipe.send(Bytes(message), {}, 30s).value();
    (void)pipe.recv_message(30s).value();
    now = Clock::now();
    times_us.push_back(peer::elapsed_us(begin, now) / 2);
  }
  return times_us;
}

void measure(const char* path, const char* policy, const tendon::ContextOptions& options,
             Clock::duration time) {
  const peer::Words words;
  std::fflush(stdout);
  const pid_t child = peer::spawn([&] { echo(words, options); });
  const std::string address = words.read_text();
  {
    Context context = Context::create(options).value();
    std::vector<Pipe> pipes;
    for (std::size_t i = 0; i < kThreads; ++i)
      pipes.push_back(Pipe::connect(context, address, 30s).value());
    for (const std::size_t count : {std::size_t{1}, kThreads}) {
      std::vector<std::vector<double>> times_us(count);
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back([&, i] { times_us[i] = ping_pong(pipes[i], time); });
      for (std::thread& thread : threads) thread.join();
      std::vector<double> all_us;
      for (const auto& each : times_us) all_us.insert(all_us.end(), each.begin(), each.end());
      std::sort(all_us.begin(), all_us.end());
      std::printf("%s %-8s %zu threads: p50 %7.2f us, p99 %8.2f us, %8.0f messages/s\n", path,
                  policy, count, all_us[all_us.size() / 2], all_us[all_us.size() * 99 / 100],
                  static_cast<double>(all_us.size()) / std::chrono::duration<double>(time).count());
    }
    if (options.wait_policy == tendon::WaitPolicy::balanced) {
      const double before = peer::cpu_s();
      std::this_thread::sleep_for(10s);
      std::printf("%s idle for 10 s: %.1f ms of CPU\n", path, (peer::cpu_s() - before) * 1e3);
    }
  }
  waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const auto time = std::chrono::milliseconds(
      static_cast<int>((argc > 1 ? std::strtod(argv[1], nullptr) : 2.0) * 1e3));
  std::printf("%s, %u CPUs\n", peer::cpu_model().c_str(), std::thread::hardware_concurrency());
  for (const auto& [path, transport] :
       {std::pair{"shm", tendon::Transport::automatic}, std::pair{"tcp", tendon::Transport::tcp}})
    for (const auto& [policy, wait_policy] : {std::pair{"latency", tendon::WaitPolicy::latency},
                                              std::pair{"balanced", tendon::WaitPolicy::balanced},
                                              std::pair{"blocking", tendon::WaitPolicy::blocking}})
      measure(path, policy, {.wait_policy = wait_policy, .transport = transport}, time);
}
