// SPDX-License-Identifier: Apache-2.0
// The messages of spikes of examples/brain: round trips, the choice of the code, hostile bytes.
// tests/python/test_brain.py checks that Python reads and writes the same.
#include "../../../examples/brain/spikes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string_view>
#include <tendon/core/error.hpp>
#include <vector>

namespace brain {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BrainSpikes, ABitmapHasTheFirstNeuronInTheLowestBit) {
  const Spikes spikes{.neurons = 10, .fired = {0, 1, 2, 9}};
  const auto expected = bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 0b111, 0b10});
  EXPECT_EQ(encode(spikes), expected);
  EXPECT_EQ(decode(expected).value(), spikes);
}

TEST(BrainSpikes, AListHasAddressesOfAsFewBitsAsTheyNeed) {
  const Spikes spikes{.neurons = 80, .fired = {3, 79}};  // seven bits each
  const auto expected = bytes_of({2, 0, 0, 0, 80, 0, 0, 0, 2, 0, 0, 0, 0b10000011, 0b00100111});
  EXPECT_EQ(encode(spikes), expected);
  EXPECT_EQ(decode(expected).value(), spikes);
}

TEST(BrainSpikes, TheListWinsBelowADensityOfOneInLog2OfTheNeurons) {
  for (const std::uint32_t neurons : {2U, 16U, 128U, 1024U, kMaxNeurons}) {
    const double density = 1 / std::log2(neurons);
    for (std::uint32_t fired = 0; fired <= neurons; fired += 1 + neurons / 512) {
      EXPECT_EQ(code_for(neurons, fired) == SpikeCode::list, fired < density * neurons)
          << fired << " of " << neurons;
    }
  }
}

TEST(BrainSpikes, WhatIsEncodedIsDecoded) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto up_to = [&](std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(1, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    Spikes spikes{.neurons = up_to(round < 200 ? 300 : kMaxNeurons), .fired = {}};
    const std::uint32_t one_in = up_to(40);
    for (std::uint32_t neuron = 0; neuron < spikes.neurons; ++neuron)
      if (up_to(one_in) == 1) spikes.fired.push_back(neuron);
    const auto bytes = encode(spikes);
    EXPECT_EQ(bytes[0] == std::byte{2},
              spikes.fired.size() * address_bits(spikes.neurons) < spikes.neurons);
    EXPECT_LE(bytes.size(), kSpikesHeadBytes + (spikes.neurons + 7) / 8);
    EXPECT_EQ(decode(bytes).value(), spikes);
  }
}

TEST(BrainSpikes, BytesThatNobodyEncodesAreRefused) {
  const std::vector<std::vector<std::byte>> hostile = {
      {},
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0}),                   // no complete head
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7}),             // one byte less
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7, 2, 0}),       // one byte more
      bytes_of({2, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7, 2}),          // the other code
      bytes_of({3, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7, 2}),          // no code
      bytes_of({1, 1, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7, 2}),          // a reserved byte
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0, 7, 2}),          // another count
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0, 7, 6}),          // a bit beyond
      bytes_of({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),                 // no neurons
      bytes_of({2, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0}),                 // too many
      bytes_of({1, 0, 0, 0, 10, 0, 0, 0, 255, 255, 255, 255, 7, 2}),  // more than there are
      bytes_of({2, 0, 0, 0, 80, 0, 0, 0, 2, 0, 0, 0, 0b10000011, 0b00000001}),  // 3 twice
      bytes_of({2, 0, 0, 0, 80, 0, 0, 0, 2, 0, 0, 0, 0b00000011, 0b00101000}),  // 3, 80
      bytes_of({2, 0, 0, 0, 80, 0, 0, 0, 2, 0, 0, 0, 0b10000011, 0b11100111}),  // extra bits
  };
  for (std::size_t each = 0; each < hostile.size(); ++each) {
    const auto refused = decode(hostile[each]);
    ASSERT_FALSE(refused.has_value()) << each;
    EXPECT_EQ(refused.error().code, tendon::ErrorCode::corrupt_data) << each;
  }
}

TEST(BrainSpikes, ChangedBytesAreRefusedOrSaySomethingElse) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const Spikes& spikes : {Spikes{.neurons = 128, .fired = {1, 5, 99}},
                               Spikes{.neurons = 13, .fired = {0, 2, 3, 4, 7, 12}}}) {
    for (int round = 0; round < 2000; ++round) {
      auto bytes = encode(spikes);
      bytes[random() % bytes.size()] ^= std::byte{1} << (random() % 8);
      const auto decoded = decode(bytes);
      if (!decoded) continue;
      EXPECT_NE(*decoded, spikes);
      EXPECT_EQ(encode(*decoded), bytes);
    }
  }
}

}  // namespace
}  // namespace brain
