// SPDX-License-Identifier: Apache-2.0
#include "group/operands/collective.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

TEST(Collective, ANumberThatNamesNoneHasNoRow) {
  for (const int number : {0, 11, 77, 255}) {
    EXPECT_EQ(find_collective(static_cast<CollectiveOp>(number)), nullptr) << number;
    EXPECT_EQ(to_string(static_cast<CollectiveOp>(number)), "operation " + std::to_string(number));
  }
}

TEST(Collective, ARowHoldsTogether) {
  for (const Collective& row : kCollectives) {
    EXPECT_EQ(to_string(row.op), row.name);
    EXPECT_EQ(&collective(row.op), &row);
    const bool has_blocks = row.blocks_in || row.blocks_out;
    EXPECT_FALSE(row.is_alike && has_blocks) << row.name;
    EXPECT_FALSE(row.sizes_differ && !has_blocks) << row.name << ": of what?";
    EXPECT_FALSE(row.sizes_differ && row.reduces) << row.name << ": what is combined is alike";
  }
}

// The fingerprint of these operations contains the root: a wrong root is named by its number.
TEST(Collective, TheRootIsSaidWhereThereIsOne) {
  for (const Collective& row : kCollectives) {
    const std::string text = to_string(Fingerprint{.op = row.op, .root = 3});
    EXPECT_EQ(text.find("root 3") != std::string::npos, row.has_root) << text;
  }
}

}  // namespace
}  // namespace tendon::detail
