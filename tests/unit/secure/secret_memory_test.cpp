// SPDX-License-Identifier: Apache-2.0
// The kernel's facts about the memory of keys, and its contents after they have ended.
#include "secure/secret_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "secure/credentials.hpp"
#include "secure/key_file.hpp"
#include "secure/secret_bytes.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/log_lines.hpp"
#include "support/sanitizer.hpp"
#include "support/scratch_dir.hpp"
#include "support/secure/process_memory.hpp"

namespace tendon::test {
namespace {

using detail::SecretBytes;
using detail::SecretMemory;
namespace secure = detail::secure;

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}
void fill_up(MutableBytes bytes) { std::ranges::fill(bytes, std::byte{0x7e}); }

// Blocks of both sizes, and separate pages.
constexpr std::size_t kSizes[] = {1, 32, 48, 64, 65, 1152, 1153, 5000, 65537};

TEST(SecretMemory, IsNeitherSwappedNorDumpedNorForked) {
  for (const std::size_t size : kSizes) {
    const MutableBytes memory = SecretMemory::take(size);
    EXPECT_EQ(memory.size(), size);
    EXPECT_TRUE(is_zero(memory));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % SecretMemory::kAlignment, 0U);
    for (const std::byte* const byte : {&memory.front(), &memory.back()}) {
      const Mapping mapping = mapping_of(byte);
      EXPECT_TRUE(mapping.is_undumped) << mapping.name;
      EXPECT_TRUE(mapping.is_wiped) << mapping.name;
      // Under a sanitizer, mlock() does nothing.
      EXPECT_TRUE(mapping.is_locked || TENDON_SANITIZED) << mapping.name;
    }
    SecretMemory::give_back(memory);
  }
}

TEST(SecretMemory, BlocksAreWipedAndUsedAgain) {
  for (const std::size_t size : {48, 1000}) {
    const MutableBytes first = SecretMemory::take(size);
    fill_up(first);
    SecretMemory::give_back(first);
    EXPECT_TRUE(is_zero(first));
    const MutableBytes second = SecretMemory::take(size);
    EXPECT_EQ(second.data(), first.data());
    EXPECT_TRUE(is_zero(second));
    SecretMemory::give_back(second);
  }
}

TEST(SecretMemory, NoTwoShareAByteAndAllAreUsedAgain) {
  std::vector<MutableBytes> blocks;
  const auto take_all = [&] {
    for (int n = 0; n < 1000; ++n) blocks.push_back(SecretMemory::take(n % 5 == 0 ? 1152 : 64));
  };
  const auto give_some = [&](std::size_t which) {
    for (std::size_t n = which; n < blocks.size(); n += 2) SecretMemory::give_back(blocks[n]);
  };
  take_all();
  const std::size_t grown = secret_memory_bytes();
  std::ranges::sort(blocks, {}, &MutableBytes::data);
  for (std::size_t n = 1; n < blocks.size(); ++n)
    ASSERT_LE(blocks[n - 1].data() + blocks[n - 1].size(), blocks[n].data());
  for (const MutableBytes block : blocks) fill_up(block);
  give_some(1);
  for (std::size_t n = 0; n < blocks.size(); n += 2)
    ASSERT_TRUE(std::ranges::none_of(blocks[n], [](std::byte b) { return b == std::byte{0}; }));
  give_some(0);
  for (const MutableBytes block : blocks) ASSERT_TRUE(is_zero(block));
  blocks.clear();
  take_all();
  EXPECT_EQ(secret_memory_bytes(), grown);
  give_some(0);
  give_some(1);
}

TEST(SecretMemory, ThreadsTakeAndGiveBack) {
  const auto work = [](char fill_with) {
    for (int turn = 0; turn < 500; ++turn) {
      std::vector<SecretBytes> held;
      for (const std::size_t size : {32, 1100, 48, 64, 12}) {
        held.push_back(SecretBytes::copy_of(as_bytes(std::string(size, fill_with))));
        if (!std::ranges::all_of(held.front().bytes(), [&](std::byte byte) {
              return byte == static_cast<std::byte>(fill_with);
            }))
          return ADD_FAILURE() << "another one's bytes";
      }
    }
  };
  std::vector<std::thread> threads;
  for (const char letter : {'a', 'b', 'c'}) threads.emplace_back(work, letter);
  for (std::thread& thread : threads) thread.join();
}

// Forks by the C library, whose handlers run, and without it, so that only the kernel wipes.
TEST(SecretMemory, AChildHasZerosAndMemoryOfItsOwn) {
  SecretBytes small(32);
  SecretBytes expanded(1100);
  SecretBytes text(9000);
  for (SecretBytes* each : {&small, &expanded, &text}) fill_up(each->writable());
  const auto check = [&] {
    if (!is_zero(small.bytes()) || !is_zero(expanded.bytes()) || !is_zero(text.bytes())) return 1;
    SecretBytes own(32);
    if (mapping_of(own.bytes().data()).is_secret() == false) return 2;
    fill_up(own.writable());
    // It returns nothing to memory that it does not have.
    small = SecretBytes();
    expanded = SecretBytes();
    text = SecretBytes();
    const SecretBytes another(32);
    const auto distance = another.bytes().data() - own.bytes().data();
    return distance == 64 && is_zero(another.bytes()) && !is_zero(own.bytes()) ? 0 : 3;
  };
  EXPECT_TRUE(exited_with(run_in_child(check), 0));
#if !TENDON_SANITIZED
  const auto raw = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (raw == 0) _exit(check());
  EXPECT_TRUE(exited_with(wait_for(raw), 0));
#endif
  for (const SecretBytes* each : {&small, &expanded, &text}) EXPECT_FALSE(is_zero(each->bytes()));
}

TEST(SecretMemory, WhereNothingMayBeLockedItGoesOnAndWarnsOnce) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer lets mlock() do nothing";
  constexpr int kStillMay = 77;
  const int status = run_in_child([] {
    const rlimit none = {};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return kStillMay;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return kStillMay;
    const LogLines log;
    std::vector<SecretBytes> keys;
    keys.reserve(300);
    for (int n = 0; n < 300; ++n) keys.emplace_back(n % 2 == 0 ? 48 : 2000);
    fill_up(keys.front().writable());
    const auto said = log.all();
    if (said.size() != 1) return 1;
    if (said.front().find("mlock(") == std::string::npos) return 2;
    return said.front().find("ulimit -l") != std::string::npos ? 0 : 3;
  });
  if (exited_with(status, kStillMay)) GTEST_SKIP() << "it may still lock memory";
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(SecretMemory, TheLibraryLeavesTheProcessAlone) {
  const auto core_limit = [] {
    rlimit limit{};
    getrlimit(RLIMIT_CORE, &limit);
    return std::pair(limit.rlim_cur, limit.rlim_max);
  };
  const auto before = core_limit();
  ASSERT_EQ(prctl(PR_GET_DUMPABLE), 1);
  const ScratchDir scratch;
  const auto file = scratch.path() / "fleet.key";
  ASSERT_TRUE(succeeds(detail::make_key_file(file, "fleet")));
  ASSERT_TRUE(succeeds(secure::Credentials::load({.key = file.string()})));
  EXPECT_EQ(prctl(PR_GET_DUMPABLE), 1);
  EXPECT_EQ(core_limit(), before);
}

}  // namespace
}  // namespace tendon::test
