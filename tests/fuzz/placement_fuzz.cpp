// SPDX-License-Identifier: Apache-2.0
// The words of a peer about the places of leaves, behind the encoding of a schema:
//   {u8 GPUs that it has offered, u8 leaves of the schema, one byte for each leaf}
#include <algorithm>
#include <cstdint>
#include <span>
#include <tendon/core/version.hpp>
#include <tendon/session/limits.hpp>

#include "channel/placement.hpp"
#include "require.hpp"

using namespace tendon;
using namespace tendon::detail;

namespace {

using tendon::test::require;

cuda::Uuid gpu_of(std::uint8_t number) {
  cuda::Uuid gpu{};
  gpu.bytes.back() = number;
  return gpu;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes < 2) return 0;
  const auto offered = static_cast<std::uint8_t>(data[0] % (kMaxDevicesPerLink + 1));
  const std::size_t leaf_count = data[1];
  const std::span<const std::uint8_t> said(data + 2, size_bytes - 2);
  DeviceOffers peer;
  DeviceOffers offers;
  for (std::uint8_t n = 0; n < offered; ++n) {
    (void)peer.number_of(gpu_of(n), [&](const Descriptor& word) {
      require(offers.take_in(word, Features::of_minor(kProtocolMinor)).empty());
    });
  }
  const auto read = Placement::read(std::as_bytes(said), leaf_count, offers);
  if (!read) {
    require(!read.error().detail.empty());
    return 0;
  }
  require(said.size() == leaf_count);
  const auto first = std::ranges::find_if(said, [](std::uint8_t leaf) { return leaf != 0; });
  require((*read == nullptr) == (first == said.end()));
  if (*read == nullptr) return 0;
  const Placement& placement = **read;
  require(*first <= offered && placement.gpu == gpu_of(static_cast<std::uint8_t>(*first - 1)));
  require(std::ranges::equal(placement.leaves, said));
  for (const std::uint8_t leaf : said) require(leaf == 0 || leaf == *first);
  return 0;
}
