// SPDX-License-Identifier: Apache-2.0
// Processes that get no more shared memory from the system.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>

#include "core/failpoint.hpp"
#include "process/peer.hpp"
#include "process/survivor.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class SharedMemory : public PathTest {};

// A system with strict overcommit refuses pages when they are first touched. Each step of a link's
// life meets that once: the step returns an error at once, and the link continues.
TEST_F(SharedMemory, WhatTheSystemDoesNotGiveIsAnError) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  std::string outcomes;
  for (int passage = 1; passage <= 4; ++passage) {
    SCOPED_TRACE("refused for the time " + std::to_string(passage));
    Survivor survivor(Transport::shm);
    Peer peer({{"--name", "victim", "--transport", "shm"},
               {{"TENDON_FAILPOINTS", "segment.claim=error@" + std::to_string(passage)}}});
    std::string connected = peer.ask("connect " + survivor.address());
    outcomes += is_ok(connected) ? "c" : "-";
    if (!is_ok(connected)) {
      EXPECT_TRUE(is_error(connected, "resource_exhausted", "vm.overcommit_memory"));
      connected = peer.ask("connect " + survivor.address());
    }
    ASSERT_TRUE(is_ok(connected));
    Pipe pipe = survivor.listener().accept(kPatience).value();
    for (const int count : {100'000, 1'000'000}) {
      const std::string message = std::to_string(count) + " 1000";
      std::string sent = peer.ask("send 1 " + message);
      outcomes += is_ok(sent) ? "s" : "-";
      if (!is_ok(sent)) {
        EXPECT_TRUE(is_error(sent, "resource_exhausted", "vm.overcommit_memory"));
        sent = peer.ask("send 1 " + std::to_string(count));
      }
      ASSERT_TRUE(is_ok(sent));
      EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, count));
    }
  }
  // The control block is the first. A slot may belong to the service thread, which touches slots
  // ahead and tries again.
  EXPECT_TRUE(outcomes.starts_with("-ss")) << outcomes;
}

/// A control group with a limit of memory, below that of this process. The destructor removes it.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t limit_bytes) {
    std::ifstream membership("/proc/self/cgroup");
    for (std::string line; folder_.empty() && std::getline(membership, line);) {
      const bool is_old = line.find(":memory:") != std::string::npos;
      if (!is_old && !line.starts_with("0::")) continue;
      above_ = (is_old ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") +
               line.substr(line.find(':', line.find(':') + 1) + 1);
      folder_ = above_ / ("tendon-test-" + std::to_string(getpid()));
      std::error_code failure;
      if (!std::filesystem::create_directory(folder_, failure) ||
          !write(folder_ / (is_old ? "memory.limit_in_bytes" : "memory.max"), limit_bytes)) {
        rmdir(folder_.c_str());
        folder_.clear();
      }
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    // Busy until the processes in it have been reaped.
    if (!folder_.empty()) {
      EXPECT_TRUE(eventually([&] { return rmdir(folder_.c_str()) == 0; }));
    }
  }
  /// False where none can be made.
  [[nodiscard]] bool exists() const { return !folder_.empty(); }
  /// Starts a process that is in the group from its beginning.
  [[nodiscard]] std::unique_ptr<Peer> start(const Peer::Options& options) const {
    EXPECT_TRUE(write(folder_ / "cgroup.procs", getpid()));
    auto peer = std::make_unique<Peer>(options);
    EXPECT_TRUE(write(above_ / "cgroup.procs", getpid()));
    return peer;
  }

 private:
  template <class Number>
  [[nodiscard]] static bool write(const std::filesystem::path& file, Number number) {
    std::ofstream out(file);
    out << number << std::flush;
    return static_cast<bool>(out);
  }
  std::filesystem::path above_;
  std::filesystem::path folder_;
};

class MemoryCap : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(MemoryCap);

// The caps follow from the limit. Without them the kernel would kill a process that sends faster
// than its peer takes, or takes later than its peer sends.
TEST_P(MemoryCap, TheDefaultCapsKeepAProcessBelowTheLimitOfItsControlGroup) {
  if (TENDON_SANITIZED != 0) GTEST_SKIP() << "a sanitizer alone needs more memory than the limit";
  const MemoryGroup group(std::uint64_t{48} << 20);
  if (!group.exists()) GTEST_SKIP() << "no control group with a limit of memory can be made here";
  constexpr int kBytes = 1'000'000;
  constexpr int kMost = 200;
  Survivor survivor(GetParam());
  const auto peer = group.start(victim());
  Pipe pipe = survivor.meet(*peer);
  int sent_there = 0;
  std::string last;
  for (; sent_there < kMost; ++sent_there) {
    last = peer->ask("send " + std::to_string(sent_there) + " " + std::to_string(kBytes) + " 100");
    if (!is_ok(last)) break;
  }
  const bool shared = GetParam() == Transport::shm;
  EXPECT_TRUE(is_error(last, shared ? "resource_exhausted" : "timeout"));
  int sent_here = 0;
  for (; sent_here < kMost; ++sent_here)
    if (!pipe.send(patterned(static_cast<std::uint64_t>(sent_here), kBytes), 100ms)) break;
  // In shared memory these are the survivor's bytes, under its own limit.
  if (!shared) {
    EXPECT_LT(sent_here, kMost);
  }
  for (int i = 0; i < sent_there; ++i) {
    EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), static_cast<std::uint64_t>(i), kBytes));
  }
  for (int i = 0; i < sent_here; ++i) {
    EXPECT_TRUE(is_ok(peer->ask("recv " + std::to_string(i) + " " + std::to_string(kBytes))));
    EXPECT_TRUE(is_ok(peer->ask("release")));
  }
}

}  // namespace
}  // namespace tendon::test
