// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_hosts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "cli/process.hpp"
#include "core/text.hpp"
#include "core/thread.hpp"

extern char** environ;

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.bench.secure";

struct LinkRate {
  std::string_view rate;   // as tc spells it
  std::string_view burst;  // the bytes that leave at once: a tick of the rate, at least
};
LinkRate rate_of(BenchLink link) {
  return link == BenchLink::veth_1g ? LinkRate{"1gbit", "256kb"} : LinkRate{"10gbit", "2mb"};
}

Error not_here(BenchLink link, std::string_view why) {
  return Error{ErrorCode::not_supported, kWhere,
               fmt::format("--link {} needs root, network namespaces, ip and tc (iproute2) and "
                           "nsenter (util-linux), and there is: {}; --link loopback needs none",
                           word_of(link), why)};
}

/// Runs a shell script to its end; returns the text of its stderr where it failed.
std::optional<std::string> run_script(const std::string& script) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "pipe2: " + detail::errno_text(errno);
  const detail::OwnedFd reading(ends[0]);
  detail::OwnedFd writing(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDERR_FILENO);
  std::string shell = "sh";
  std::string flags = "-ec";
  std::string text = script;
  std::array<char*, 4> arguments{shell.data(), flags.data(), text.data(), nullptr};
  pid_t pid = 0;
  const int failure = posix_spawn(&pid, "/bin/sh", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  writing.reset();
  if (failure != 0) return "/bin/sh: " + detail::errno_text(failure);
  std::string said;
  std::array<char, 512> some{};
  for (ssize_t bytes = 1; bytes > 0;) {
    bytes = read(reading.get(), some.data(), some.size());
    if (bytes > 0) said.append(some.data(), static_cast<std::size_t>(bytes));
    if (bytes < 0 && errno == EINTR) bytes = 1;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return detail::cleaned(said.empty() ? "a command failed without a word" : said);
}

/// Makes a network namespace on a new thread, so that the calling thread stays in its own.
Result<detail::OwnedFd> make_namespace() {
  detail::OwnedFd made;
  int failure = 0;
  TENDON_TRY(thread,
             detail::Thread::start(
                 {.name = "tendon-host", .where = kWhere, .task = "that makes a namespace"}, [&] {
                   if (unshare(CLONE_NEWNET) == 0)
                     made = detail::OwnedFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
                   if (!made) failure = errno;
                 }));
  thread.join();
  if (!made) return system_error(kWhere, "unshare(CLONE_NEWNET)", failure);
  return made;
}

// This CPU takes the packets that arrive at `interface`. The files of a namespace's interfaces are
// visible where its own sysfs is mounted.
std::string steer(std::string_view interface, int cpu) {
  return fmt::format(
      "unshare -m sh -ec 'mount -t sysfs sysfs /sys; "
      "echo {:x} > /sys/class/net/{}/queues/rx-0/rps_cpus'\n",
      1ull << std::max(cpu, 0), interface);
}

constexpr std::string_view kHere = "10.78.0.1";
constexpr std::string_view kThere = "10.78.0.2";

}  // namespace

Result<BenchHosts> BenchHosts::make(BenchLink link, std::optional<SoftirqPlace> softirq) {
  if (link == BenchLink::loopback) {
    if (!softirq) return BenchHosts("127.0.0.1");
    return Error{ErrorCode::invalid_argument, kWhere,
                 "--softirq steers the packets of a link veth, and loopback has no other CPU"};
  }
  BenchHosts hosts{std::string(kHere)};
  auto other = make_namespace();
  if (!other) return not_here(link, other.error().detail);
  hosts.other_ = *std::move(other);
  if (unshare(CLONE_NEWNET) != 0) return not_here(link, "unshare: " + detail::errno_text(errno));

  const auto [rate, burst] = rate_of(link);
  const std::string there = fmt::format("/proc/{}/fd/{}", getpid(), hosts.other_.get());
  const auto set_up = [&](std::string_view interface, std::string_view address) {
    std::string script = fmt::format(
        "ip address add {1}/24 dev {0}\nip link set lo up\nip link set {0} up\n"
        "tc qdisc add dev {0} root tbf rate {2} burst {3} limit 4mb\n",
        interface, address, rate, burst);
    if (softirq) script += steer(interface, usable_cpu(*softirq == SoftirqPlace::sender ? 0 : 1));
    return script;
  };
  const std::string script = fmt::format(
      "ip link add bench0 type veth peer name bench1 netns {0}\n{1}"
      "nsenter --net={0} sh -e <<'END'\n{2}END\n",
      there, set_up("bench0", kHere), set_up("bench1", kThere));
  if (const auto failed = run_script(script)) return not_here(link, *failed);
  return hosts;
}

std::vector<std::string> BenchHosts::other_by() const {
  if (!other_) return {};
  return {"nsenter", fmt::format("--net=/proc/{}/fd/{}", getpid(), other_.get())};
}

}  // namespace tendon::cli
