// SPDX-License-Identifier: Apache-2.0
#include "memory/large_copy.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/child.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kLarge = LargeCopies::kFirstBytes.front();
/// A trial takes some 40 messages; more are needed where the machine disturbs them.
constexpr int kMostMessages = 2000;

/// A message, and memory to copy it to.
struct Buffers {
  explicit Buffers(std::uint64_t size_bytes) : from(size_bytes), to(size_bytes) {
    test::fill_pattern(from, 1);
  }
  [[nodiscard]] bool are_same() const {
    return std::memcmp(from.data(), to.data(), from.size()) == 0;
  }
  std::vector<std::byte> from;
  std::vector<std::byte> to;
};

/// Copies until the method is chosen; fails when it never is.
testing::AssertionResult settle(LargeCopies& copies, Buffers& buffers) {
  for (int i = 0; i < kMostMessages; ++i) {
    if (copies.choice(buffers.from.size())) return testing::AssertionSuccess();
    std::memset(buffers.to.data(), 0, buffers.to.size());
    copies.copy(buffers.to, buffers.from, buffers.from.size());
    if (!buffers.are_same()) return testing::AssertionFailure() << "bytes differ, message " << i;
  }
  return testing::AssertionFailure() << "not known after " << kMostMessages << " messages";
}

TEST(LargeCopies, CopiesRightWhileItTriesAndAfterwards) {
  LargeCopies copies;
  Buffers buffers(kLarge + 4321);
  EXPECT_FALSE(copies.choice(kLarge));
  ASSERT_TRUE(settle(copies, buffers));
  const auto choice = copies.choice(kLarge);
  for (const CopyHint way : kCopyHints)
    for (const double ns : choice->figures.of(way)) EXPECT_GT(ns, 0) << to_string(way);
  EXPECT_EQ(choice->way, choose_copy(choice->figures));
  std::memset(buffers.to.data(), 0, buffers.to.size());
  copies.copy(buffers.to, buffers.from, buffers.from.size());
  EXPECT_TRUE(buffers.are_same());
}

TEST(LargeCopies, APartOfALargeWholeIsTriedAsTheWhole) {
  LargeCopies copies;
  constexpr std::uint64_t kPartBytes = (std::uint64_t{1} << 20) - 777;  // none begins a line
  Buffers buffers(kPartBytes * 8);
  for (int i = 0; i < kMostMessages && !copies.choice(kLarge); ++i) {
    for (std::uint64_t at = 0; at < buffers.from.size(); at += kPartBytes)
      copies.copy(MutableBytes(buffers.to).subspan(at, kPartBytes),
                  Bytes(buffers.from).subspan(at, kPartBytes), kLarge);
    ASSERT_TRUE(buffers.are_same());
  }
  EXPECT_TRUE(copies.choice(kLarge));
}

TEST(LargeCopies, EachRangeOfSizesIsTriedByItself) {
  LargeCopies copies;
  Buffers buffers(kLarge);
  ASSERT_TRUE(settle(copies, buffers));
  EXPECT_TRUE(copies.choice(LargeCopies::kFirstBytes[1] - 1));
  for (std::size_t i = 1; i < LargeCopies::kFirstBytes.size(); ++i)
    EXPECT_FALSE(copies.choice(LargeCopies::kFirstBytes[i])) << i;
  EXPECT_FALSE(copies.choice(~std::uint64_t{0}));
}

// Every message is copied to fresh memory: the time of a first touch says nothing about a method.
TEST(LargeCopies, UntouchedMemoryDecidesNothing) {
  LargeCopies copies;
  const std::vector<std::byte> from(kLarge, std::byte{1});
  for (int i = 0; i < 45; ++i) {
    // Above the threshold from which malloc maps fresh pages.
    const auto to = std::make_unique_for_overwrite<std::byte[]>(std::size_t{64} << 20);
    copies.copy({to.get(), from.size()}, from, from.size());
    ASSERT_EQ(std::memcmp(to.get(), from.data(), from.size()), 0);
  }
  EXPECT_FALSE(copies.choice(kLarge));
}

TEST(LargeCopies, ThreadsCopyWhileOneIsMeasured) {
  LargeCopies copies;
  constexpr int kThreads = 4;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      Buffers buffers(kLarge + 99);
      if (!settle(copies, buffers)) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(copies.choice(kLarge));
}

// The thread that is measured does not exist in the child: nothing there waits for it.
TEST(LargeCopies, AForkedChildWaitsForNoThreadOfItsParent) {
  LargeCopies copies;
  std::atomic<bool> stop = false;
  std::thread measured([&] {
    std::vector<std::byte> from(kLarge, std::byte{1});
    while (!stop) {
      std::vector<std::byte> fresh(kLarge);
      copies.copy(fresh, from, from.size());
    }
  });
  Buffers buffers(kLarge + 5);
  for (int i = 0; i < 10; ++i) {
    const int status = test::run_in_child([&] {
      copies.copy(buffers.to, buffers.from, buffers.from.size());
      return buffers.are_same() ? 0 : 1;
    });
    EXPECT_TRUE(test::exited_with(status, 0)) << status;
  }
  stop = true;
  measured.join();
}

TEST(CopyPart, SmallOnesAreCopiedToo) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4097}}) {
    Buffers buffers(size);
    copy_part(buffers.to, buffers.from, size);
    EXPECT_EQ(buffers.to, buffers.from) << size;
  }
  copy_part({}, {}, kLarge);
}

TEST(CopyPart, IsOfTheWholeProcess) {
  Buffers buffers(kLarge);
  for (int i = 0; i < kMostMessages && !large_copies().choice(kLarge); ++i)
    copy_part(buffers.to, buffers.from, buffers.from.size());
  EXPECT_TRUE(large_copies().choice(kLarge));
  EXPECT_TRUE(buffers.are_same());
}

}  // namespace
}  // namespace tendon::v0::detail
