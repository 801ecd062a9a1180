// SPDX-License-Identifier: Apache-2.0
#include "channel/placement.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::DeviceOffers;
using detail::Features;
using detail::Placement;
using detail::cuda::Uuid;

Uuid uuid_of(std::uint8_t number) {
  Uuid uuid{};
  uuid.bytes.fill(number);
  return uuid;
}

class PlacementTest : public testing::Test {
 protected:
  /// The peer offers GPUs 0 and 1.
  PlacementTest() {
    DeviceOffers peer;
    for (const std::uint8_t n : std::initializer_list<std::uint8_t>{10, 11}) {
      (void)peer.number_of(uuid_of(n), [this](const detail::Descriptor& word) {
        EXPECT_EQ(offers_.take_in(word, Features::of_minor(2)), "");
      });
    }
  }
  /// Reads the places of a schema with as many leaves.
  [[nodiscard]] Result<std::shared_ptr<const Placement>> read(
      const std::vector<std::uint8_t>& said) const {
    return read(said, said.size());
  }
  [[nodiscard]] Result<std::shared_ptr<const Placement>> read(const std::vector<std::uint8_t>& said,
                                                              std::size_t leaf_count) const {
    return Placement::read(std::as_bytes(std::span(said)), leaf_count, offers_);
  }

  DeviceOffers offers_;
};

TEST_F(PlacementTest, NamesTheGpuOfItsLeaves) {
  const auto some = read({0, 2, 0, 2});
  ASSERT_TRUE(succeeds(some));
  ASSERT_NE(*some, nullptr);
  EXPECT_EQ((*some)->gpu, uuid_of(11));
  EXPECT_FALSE((*some)->is_on_gpu(0));
  EXPECT_TRUE((*some)->is_on_gpu(1));
  EXPECT_FALSE((*some)->is_on_gpu(2));
  EXPECT_TRUE((*some)->is_on_gpu(3));
  EXPECT_FALSE((*some)->is_all_on_gpu());
  const auto all = read({1, 1});
  ASSERT_TRUE(succeeds(all));
  EXPECT_EQ((*all)->gpu, uuid_of(10));
  EXPECT_TRUE((*all)->is_all_on_gpu());
}

TEST_F(PlacementTest, OfHostMemoryAloneIsNone) {
  for (const std::vector<std::uint8_t>& said :
       std::initializer_list<std::vector<std::uint8_t>>{{}, {0}, {0, 0, 0}}) {
    const auto placement = read(said);
    ASSERT_TRUE(succeeds(placement));
    EXPECT_EQ(*placement, nullptr) << said.size();
  }
}

TEST_F(PlacementTest, OfAnotherNumberOfLeavesIsRefused) {
  EXPECT_TRUE(fails_with(read({1}, 2), ErrorCode::corrupt_data, "1 leaves lie, of a schema of 2"));
  EXPECT_TRUE(fails_with(read({1, 1, 1}, 2), ErrorCode::corrupt_data, "3 leaves"));
  EXPECT_TRUE(fails_with(read({}, 1), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(read({0}, 0), ErrorCode::corrupt_data));
}

TEST_F(PlacementTest, OfAGpuThatWasNotOfferedIsRefused) {
  EXPECT_TRUE(fails_with(read({0, 3}), ErrorCode::corrupt_data, "its GPU 2"));
  EXPECT_TRUE(fails_with(read({255}), ErrorCode::corrupt_data, "its GPU 254"));
}

TEST_F(PlacementTest, OfTwoGpusIsRefusedWithBothNames) {
  EXPECT_TRUE(fails_with(read({0, 1, 1, 2}), ErrorCode::unsupported_device, "0 and 1"));
  EXPECT_TRUE(fails_with(read({2, 0, 1}), ErrorCode::unsupported_device, "1 and 0"));
  EXPECT_TRUE(fails_with(read({2, 255}), ErrorCode::unsupported_device, "1 and 254"));
}

TEST_F(PlacementTest, IsEqualByLeavesAndGpu) {
  const auto one = read({0, 1}).value();
  EXPECT_EQ(*one, *read({0, 1}).value());
  EXPECT_NE(*one, *read({1, 0}).value());
  EXPECT_NE(*one, *read({0, 2}).value());
}

}  // namespace
}  // namespace tendon::test
