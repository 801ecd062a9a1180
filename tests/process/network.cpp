// SPDX-License-Identifier: Apache-2.0
#include "process/network.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

namespace tendon::test {
namespace {

using detail::OwnedFd;

// The table that drop() or reset() makes.
constexpr const char* kTable = "tendon_drop";

std::string program(std::string_view name) {
  for (const char* const folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"})
    if (std::filesystem::exists(folder + std::string(name))) return folder + std::string(name);
  return {};
}

// Namespaces belong to threads: this process stays in its own.
OwnedFd make_namespace() {
  OwnedFd made;
  int failure = 0;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      failure = errno;
      return;
    }
    made = OwnedFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!made) failure = errno;
  }).join();
  errno = failure;
  return made;
}

void within(const OwnedFd& space, const std::function<void()>& work) {
  std::thread([&] {
    ASSERT_EQ(setns(space.get(), CLONE_NEWNET), 0) << std::strerror(errno);
    work();
  }).join();
}

Ended run_within(const OwnedFd& space, const std::vector<std::string>& words) {
  Ended ended;
  within(space, [&] {
    ended = Command({words.begin() + 1, words.end()}, program(words.front())).finish();
  });
  return ended;
}

std::string succeed_within(const OwnedFd& space, const std::vector<std::string>& words) {
  const Ended ended = run_within(space, words);
  std::string command;
  for (const std::string& word : words) command += word + " ";
  EXPECT_EQ(ended.code, 0) << command << ": " << ended.err;
  return ended.out;
}

std::string bridge_name(std::uint32_t network) { return "br" + std::to_string(network); }
std::string port_name(std::uint32_t host, std::uint32_t network) {
  return "p" + std::to_string(host) + "_" + std::to_string(network);
}

}  // namespace

std::optional<std::string> Network::why_not() {
  for (const char* const name : {"ip", "nft"})
    if (program(name).empty()) return "not installed: " + std::string(name);
  const OwnedFd space = make_namespace();
  if (!space)
    return "network namespaces cannot be made here: unshare: " + std::string(std::strerror(errno));
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"ip", "link", "add", "br0", "type", "bridge"},
        Words{"ip", "link", "add", "end0", "type", "veth", "peer", "name", "end1"},
        Words{"nft", "add", "table", "inet", kTable}}) {
    if (const Ended ended = run_within(space, words); ended.code != 0)
      return "networks cannot be made here: " + words[0] + ": " + ended.err;
  }
  return {};
}

Network::Network(std::uint32_t hosts, std::uint32_t networks)
    : wires_(make_namespace()), networks_(networks) {
  for (std::uint32_t host = 0; host < hosts; ++host) {
    hosts_.push_back(make_namespace());
    run(host, {"ip", "link", "set", "lo", "up"});
  }
  const auto wire = [&](const std::vector<std::string>& words) { succeed_within(wires_, words); };
  for (std::uint32_t network = 0; network < networks; ++network) {
    wire({"ip", "link", "add", bridge_name(network), "type", "bridge"});
    wire({"ip", "link", "set", bridge_name(network), "up"});
    for (std::uint32_t host = 0; host < hosts; ++host) {
      const std::string port = port_name(host, network);
      const std::string interface = "net" + std::to_string(network);
      // The name by which `ip` finds the other namespace: a descriptor of the process that runs it.
      const std::string there =
          "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(hosts_[host].get());
      wire({"ip", "link", "add", port, "type", "veth", "peer", "name", interface, "netns", there});
      wire({"ip", "link", "set", port, "master", bridge_name(network), "up"});
      run(host, {"ip", "address", "add", address(host, network) + "/24", "dev", interface});
      run(host, {"ip", "link", "set", interface, "up"});
    }
  }
}

std::string Network::address(std::uint32_t host, std::uint32_t network) {
  return "10.77." + std::to_string(network) + "." + std::to_string(host + 1);
}

void Network::inside(std::uint32_t host, const std::function<void()>& work) const {
  within(hosts_[host], work);
}

std::string Network::run(std::uint32_t host, const std::vector<std::string>& words) const {
  return succeed_within(hosts_[host], words);
}

void Network::drop(std::uint32_t host, const std::string& match) const {
  std::ostringstream rules;
  rules << "add table inet " << kTable;
  for (const std::string_view hook : {"input", "output"}) {
    rules << "; add chain inet " << kTable << ' ' << hook << " { type filter hook " << hook
          << " priority 0; }; add rule inet " << kTable << ' ' << hook
          << (hook == "input" ? " iifname" : " oifname") << " != \"lo\" " << match
          << " counter drop";
  }
  run(host, {"nft", rules.str()});
}

void Network::reset(std::uint32_t host, const std::string& match) const {
  std::ostringstream rules;
  rules << "add table inet " << kTable << "; add chain inet " << kTable
        << " input { type filter hook input priority 0; }; add rule inet " << kTable
        << " input iifname != \"lo\" " << match
        << " tcp flags & rst != rst counter reject with tcp reset";
  run(host, {"nft", rules.str()});
}

std::uint64_t Network::dropped_count(std::uint32_t host) const {
  std::istringstream words(run(host, {"nft", "list", "table", "inet", kTable}));
  std::uint64_t count = 0;
  for (std::string word; words >> word;) {
    std::uint64_t packets = 0;
    if (word == "packets" && words >> packets) count += packets;
  }
  return count;
}

void Network::heal(std::uint32_t host) const {
  run(host, {"nft", "delete", "table", "inet", kTable});
}

void Network::set_cables(std::uint32_t host, std::string_view state) const {
  for (std::uint32_t network = 0; network < networks_; ++network)
    succeed_within(wires_, {"ip", "link", "set", port_name(host, network), std::string(state)});
}
void Network::pull_cable(std::uint32_t host) const { set_cables(host, "down"); }
void Network::put_cable(std::uint32_t host) const { set_cables(host, "up"); }

}  // namespace tendon::test
