// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tendon/core/formerly.hpp>
#include <vector>

namespace {

using tendon::Formerly;

struct Options {
  int size = 1;
  Formerly<int> length = {};
  std::optional<bool> loud = std::nullopt;
  Formerly<bool> noisy = {};
  Formerly<std::vector<std::string>> words = {};
};

TEST(Formerly, LeavesThePresentNameAlone) {
  const Options options{.size = 2, .loud = false};
  EXPECT_EQ(options.length.over(options.size), 2);
  EXPECT_EQ(options.noisy.over(options.loud), false);
  EXPECT_EQ(options.words.over({"a"}), std::vector<std::string>{"a"});
}

TEST(Formerly, IsReadWhereItWasSet) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const Options options{.length = 3, .noisy = true, .words = std::vector<std::string>()};
#pragma GCC diagnostic pop
  EXPECT_EQ(options.length.over(options.size), 3);
  EXPECT_EQ(options.noisy.over(options.loud), true);
  EXPECT_TRUE(options.words.over({"a"}).empty());
}

}  // namespace
