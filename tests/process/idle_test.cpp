// SPDX-License-Identifier: Apache-2.0
// The cost of a Context that has nothing to do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "process/peer.hpp"
#include "process/survivor.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

std::uint64_t status_number(const std::string& file, const std::string& key) {
  std::ifstream status(file);
  for (std::string word; status >> word;) {
    std::uint64_t number = 0;
    if (word == key + ":" && status >> number) return number;
  }
  return 0;
}

/// How often each thread of this process, except the calling one, fell asleep. Interruptions by
/// other programs are not counted.
std::map<std::string, std::uint64_t> wake_ups() {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string id = task.path().filename();
    if (id == std::to_string(gettid())) continue;
    const std::string file = task.path().string() + "/status";
    counts[id] = status_number(file, "voluntary_ctxt_switches");
  }
  return counts;
}

std::uint64_t sum_of_new(const std::map<std::string, std::uint64_t>& before,
                         const std::map<std::string, std::uint64_t>& after) {
  std::uint64_t sum = 0;
  for (const auto& [id, count] : after) {
    const auto found = before.find(id);
    sum += count - (found == before.end() ? 0 : found->second);
  }
  return sum;
}

/// Blocks until `window` has passed. The test measures this time; it does not wait for an event.
void observe_for(std::chrono::milliseconds window) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  itimerspec when{};
  when.it_value.tv_sec = window.count() / 1000;
  when.it_value.tv_nsec = window.count() % 1000 * 1'000'000;
  ASSERT_EQ(timerfd_settime(timer, 0, &when, nullptr), 0);
  pollfd wanted{timer, POLLIN, 0};
  while (poll(&wanted, 1, -1) != 1) {
  }
  close(timer);
}

/// How often the other threads wake up in `window`, after they have settled.
std::uint64_t wake_ups_in(std::chrono::milliseconds window) {
  for (int i = 0; i < 200; ++i) {
    const auto resting = wake_ups();
    observe_for(std::chrono::milliseconds(20));
    if (sum_of_new(resting, wake_ups()) == 0) break;
  }
  const auto before = wake_ups();
  observe_for(window);
  return sum_of_new(before, wake_ups());
}

using namespace std::chrono_literals;

// ThreadSanitizer runs a thread of its own, which wakes at any time.
#if defined(__SANITIZE_THREAD__)
#define TENDON_ONLY_OUR_THREADS() GTEST_SKIP() << "the sanitizer's own thread wakes"
#else
#define TENDON_ONLY_OUR_THREADS() static_cast<void>(0)
#endif

TEST(Idle, AContextWithoutLinksNeverWakes) {
  TENDON_ONLY_OUR_THREADS();
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  ASSERT_FALSE(wake_ups().empty()) << "no service thread to look at";
  EXPECT_EQ(wake_ups_in(1500ms), 0u);
}

TEST(Idle, AContextWhoseLinksAreGoneNeverWakesEither) {
  TENDON_ONLY_OUR_THREADS();
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  {
    Context other = Context::create({}).value();
    Pipe pipe = Pipe::connect(other, listener.address(), kPatience).value();
    Pipe accepted = listener.accept(kPatience).value();
  }
  ASSERT_TRUE(eventually([&] { return context.members().empty(); }));
  EXPECT_EQ(wake_ups_in(1500ms), 0u);
}

// The comment of Context states these costs.
TEST(Idle, ALinkCostsTwoWakeUpsASecondAndTwoMoreOverTcp) {
  TENDON_ONLY_OUR_THREADS();
  constexpr double kTicks = 2;        // of this process, for all links
  constexpr double kSignsOfLife = 2;  // of the peer; in shared memory they wake no thread
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    Context context = Context::create({.transport = transport}).value();
    Listener listener = Listener::bind(context, "127.0.0.1:0").value();
    Peer peer({{"--transport", name_of(transport)}, {}});
    ASSERT_TRUE(is_ok(peer.ask("connect " + listener.address())));
    Pipe pipe = listener.accept(kPatience).value();
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t count = wake_ups_in(2000ms);
    // At least as long as the observation, which a busy machine makes longer.
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double a_second = transport == Transport::tcp ? kTicks + kSignsOfLife : kTicks;
    EXPECT_LE(static_cast<double>(count), a_second * seconds.count() + 1) << name_of(transport);
    std::cout << name_of(transport) << ": " << count << " wake-ups in two seconds\n";
  }
}

TEST(Idle, AMinimalProgramFitsInSixteenMebibytes) {
#if TENDON_SANITIZED
  GTEST_SKIP() << "a sanitizer needs memory of its own";
#endif
  int to[2];
  int from[2];
  ASSERT_EQ(pipe2(to, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(from, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execl(TENDON_HELPER_DIR "/idle_main", "idle_main", nullptr);
    _exit(99);
  }
  close(to[0]);
  close(from[1]);
  char ready[6];
  ASSERT_EQ(read(from[0], ready, 6), 6);
  const std::uint64_t kib = status_number("/proc/" + std::to_string(child) + "/status", "VmRSS");
  std::cout << "resident: " << kib << " KiB\n";
  EXPECT_GT(kib, 0u);
  EXPECT_LE(kib, 16u * 1024);
  close(to[1]);
  close(from[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tendon::test
