// SPDX-License-Identifier: Apache-2.0
#include "runtime/parts.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>

namespace tendon::test {
namespace {

using detail::ContextParts;

/// Counts how many live at a time; its end can be delayed.
class Part {
 public:
  explicit Part(ContextParts& parts, std::atomic<int>& alive) : parts_(parts), alive_(alive) {
    EXPECT_EQ(++alive_, 1);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (at_end != nullptr) at_end->wait();
    --alive_;
    parts_.end<Part>();
  }
  [[nodiscard]] Result<void> open() { return opens; }
  Result<void> opens;
  std::latch* at_end = nullptr;

 private:
  ContextParts& parts_;
  std::atomic<int>& alive_;
};

class Parts : public testing::Test {
 protected:
  Result<std::shared_ptr<Part>> get(Result<void> opens = {}) {
    return parts_.of<Part>([&] {
      auto part = std::make_shared<Part>(parts_, alive_);
      part->opens = opens;
      return part;
    });
  }
  ContextParts parts_;
  std::atomic<int> alive_{0};
};

TEST_F(Parts, OneLivesWhileSomebodySharesIt) {
  auto first = get().value();
  EXPECT_EQ(get().value(), first);
  first = nullptr;
  EXPECT_EQ(alive_, 0);
  EXPECT_NE(get().value(), nullptr);
}

TEST_F(Parts, OneThatCannotBeOpenedIsNone) {
  EXPECT_EQ(get(Error{ErrorCode::not_found, "test", "no"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(alive_, 0);
  EXPECT_TRUE(get().has_value());
}

TEST_F(Parts, TheNextOneIsMadeWhenTheLastHasEnded) {
  std::latch may_end(1);
  auto first = get().value();
  first->at_end = &may_end;
  auto ending =
      std::async(std::launch::async, [part = std::move(first)]() mutable { part = nullptr; });
  auto next = std::async(std::launch::async, [&] { return get().value(); });
  may_end.count_down();
  EXPECT_NE(next.get(), nullptr);
  ending.get();
}

}  // namespace
}  // namespace tendon::test
