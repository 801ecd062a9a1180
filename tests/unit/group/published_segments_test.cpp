// SPDX-License-Identifier: Apache-2.0
// A member's mappings of memory that is shown to several groups of one link.
#include "group/membership/published_segments.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

using Cores = std::vector<std::shared_ptr<GroupCore>>;

/// The number of mappings of the segment in this process: its maker's, and its readers'.
int mappings_of(const Segment& segment) {
  struct stat status = {};
  EXPECT_EQ(fstat(segment.fd(), &status), 0);
  const std::string inode = " " + std::to_string(status.st_ino) + " ";
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find("/memfd:tendon") != std::string::npos && line.find(inode) != line.npos;
  return count;
}

class GroupsOfOneLink : public testing::Test {
 protected:
  void SetUp() override {
    contexts_.join();
    first_ = contexts_.cores;
    second_ = contexts_.join_another(test::fresh_group_address());
    ASSERT_TRUE(second_[0] != nullptr && second_[1] != nullptr);
    ASSERT_EQ(&first_[0]->mesh()->channel({1})->link(), &second_[0]->mesh()->channel({1})->link());
  }
  void TearDown() override {
    for (const auto& core : second_)
      if (core != nullptr) core->leave();
  }
  /// Rank 0 shows the segment in this group; returns rank 1's mapping.
  std::shared_ptr<Segment> shown_in(const Cores& group) {
    const std::uint32_t id = group[0]->mesh()->name_segment(segment_);
    EXPECT_TRUE(
        contexts_.progress_until([&] { return group[0]->mesh()->publish({1}, segment_).value(); }));
    EXPECT_TRUE(contexts_.progress_until([&] { return found_in(group, id) != nullptr; }));
    return found_in(group, id);
  }
  static std::shared_ptr<Segment> found_in(const Cores& group, std::uint32_t id) {
    return group[1]->mesh()->channel({0})->published().find(id);
  }
  /// All members leave the group.
  static void close(Cores& group) {
    for (auto& core : group) {
      core->leave();
      core.reset();
    }
  }
  bool mapped_times(int count) {
    return contexts_.progress_until([&] { return mappings_of(*segment_) == count; });
  }

  test::GroupCores contexts_{2};
  Cores first_;
  Cores second_;
  const std::shared_ptr<Segment> segment_ = Segment::create(4096, Writers::maker_only).value();
};

TEST_F(GroupsOfOneLink, MapASegmentThatBothAreShownOnce) {
  EXPECT_EQ(mappings_of(*segment_), 1) << "its maker's";
  EXPECT_EQ(shown_in(first_), shown_in(second_));
  EXPECT_EQ(mappings_of(*segment_), 2);
}

// A group that ends drops only its own share, also while the link stays.
TEST_F(GroupsOfOneLink, KeepItAsLongAsOneOfThemIsThere) {
  const auto link = ContextCore::of(contexts_.contexts[1])->links().all()->front();
  const std::byte* const at = shown_in(first_)->data();
  ASSERT_EQ(shown_in(second_)->data(), at);
  segment_->data()[7] = std::byte{42};
  contexts_.cores.assign(2, nullptr);
  close(first_);
  const std::uint32_t id = second_[0]->mesh()->name_segment(segment_);
  for (int i = 0; i < 100; ++i) contexts_.progress_until([] { return true; });
  ASSERT_EQ(found_in(second_, id)->data(), at);
  EXPECT_EQ(at[7], std::byte{42});
  close(second_);
  EXPECT_TRUE(mapped_times(1)) << "its maker's";
  EXPECT_FALSE(link->ended());

  // A peer to which the segment is shown later gets it again.
  second_ = contexts_.join_another(test::fresh_group_address());
  ASSERT_TRUE(second_[0] != nullptr && second_[1] != nullptr);
  ASSERT_EQ(&second_[1]->mesh()->channel({0})->link(), link.get());
  EXPECT_EQ(shown_in(second_)->data()[7], std::byte{42});
}

}  // namespace
}  // namespace tendon::detail
