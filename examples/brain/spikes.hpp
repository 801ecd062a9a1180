// SPDX-License-Identifier: Apache-2.0
// The neurons that fired in one tick, encoded as the bytes of a sample; spikes.py is the same.
//
// u8 code | u8[3] zero | u32 neurons | u32 fired | payload, little endian
//
// code 1: a bitmap, one bit for each neuron, the first one in the lowest bit of the first byte.
// code 2: a list of addresses in ascending order, each with as many bits as the highest one needs,
//         packed from the lowest bit of the first byte on.
//
// The shorter one is sent. The list is shorter below a density of 1 / log2(neurons).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

namespace brain {

inline constexpr std::uint32_t kMaxNeurons = 65536;
inline constexpr std::size_t kSpikesHeadBytes = 12;

enum class SpikeCode : std::uint8_t { bitmap = 1, list = 2 };

struct Spikes {
  std::uint32_t neurons = 1;         ///< 1 to kMaxNeurons
  std::vector<std::uint32_t> fired;  ///< in ascending order, each below `neurons`

  friend bool operator==(const Spikes&, const Spikes&) = default;
};

/// The bits of an address.
inline std::size_t address_bits(std::uint32_t neurons) {
  return neurons == 1 ? 1 : static_cast<std::size_t>(std::bit_width(neurons - 1));
}

inline SpikeCode code_for(std::uint32_t neurons, std::size_t fired) {
  return fired * address_bits(neurons) < neurons ? SpikeCode::list : SpikeCode::bitmap;
}

inline std::vector<std::byte> encode(const Spikes& spikes) {
  const auto count = static_cast<std::uint32_t>(spikes.fired.size());
  const SpikeCode code = code_for(spikes.neurons, count);
  const std::size_t bits = address_bits(spikes.neurons);
  const std::size_t payload_bits = code == SpikeCode::list ? count * bits : spikes.neurons;
  std::vector<std::byte> bytes(kSpikesHeadBytes + (payload_bits + 7) / 8);
  bytes[0] = static_cast<std::byte>(code);
  std::memcpy(bytes.data() + 4, &spikes.neurons, 4);
  std::memcpy(bytes.data() + 8, &count, 4);
  const auto set = [&](std::size_t bit) {
    bytes[kSpikesHeadBytes + bit / 8] |= std::byte{1} << (bit % 8);
  };
  std::size_t place = 0;
  for (const std::uint32_t neuron : spikes.fired) {
    if (code == SpikeCode::bitmap) {
      set(neuron);
      continue;
    }
    for (std::size_t bit = 0; bit < bits; ++bit, ++place)
      if (((neuron >> bit) & 1U) != 0) set(place);
  }
  return bytes;
}

/// Decodes a peer's bytes; corrupt_data for any bytes that encode() does not produce.
inline tendon::Result<Spikes> decode(tendon::Bytes bytes) {
  const auto corrupt = [](std::string what) {
    return tendon::Error{tendon::ErrorCode::corrupt_data, "brain.decode", std::move(what)};
  };
  if (bytes.size() < kSpikesHeadBytes)
    return corrupt(std::to_string(bytes.size()) + " bytes are no message of spikes");
  Spikes spikes;
  std::uint32_t count = 0;
  std::memcpy(&spikes.neurons, bytes.data() + 4, 4);
  std::memcpy(&count, bytes.data() + 8, 4);
  if (spikes.neurons == 0 || spikes.neurons > kMaxNeurons || count > spikes.neurons) {
    return corrupt(std::to_string(count) + " of " + std::to_string(spikes.neurons) +
                   " neurons; legal are 1 to " + std::to_string(kMaxNeurons));
  }
  const SpikeCode code = code_for(spikes.neurons, count);
  const std::size_t bits = address_bits(spikes.neurons);
  const std::size_t payload_bits = code == SpikeCode::list ? count * bits : spikes.neurons;
  const tendon::Bytes payload = bytes.subspan(kSpikesHeadBytes);
  if (bytes[0] != static_cast<std::byte>(code) || payload.size() != (payload_bits + 7) / 8)
    return corrupt("a payload of another length or code than its count asks for");
  const auto is_set = [&](std::size_t bit) {
    return (payload[bit / 8] >> (bit % 8) & std::byte{1}) != std::byte{0};
  };
  spikes.fired.reserve(count);
  if (code == SpikeCode::bitmap) {
    for (std::uint32_t neuron = 0; neuron < spikes.neurons; ++neuron)
      if (is_set(neuron)) spikes.fired.push_back(neuron);
  } else {
    for (std::size_t entry = 0; entry < count; ++entry) {
      std::uint32_t neuron = 0;
      for (std::size_t bit = 0; bit < bits; ++bit)
        neuron |= static_cast<std::uint32_t>(is_set(entry * bits + bit)) << bit;
      spikes.fired.push_back(neuron);
    }
  }
  // Each set of spikes has one legal encoding.
  for (std::size_t entry = 0; entry < spikes.fired.size(); ++entry) {
    if (spikes.fired[entry] >= spikes.neurons ||
        (entry != 0 && spikes.fired[entry] <= spikes.fired[entry - 1]))
      return corrupt("addresses that do not ascend, or lie beyond the population");
  }
  if (spikes.fired.size() != count) return corrupt("a bitmap of another count");
  if (const auto again = encode(spikes); std::memcmp(again.data(), bytes.data(), bytes.size()) != 0)
    return corrupt("bits that say nothing are set");
  return spikes;
}

}  // namespace brain
