// SPDX-License-Identifier: Apache-2.0
//
// One memcpy of n bytes between two touched buffers: the lower bound of any copy.
#include "peer.hpp"

namespace {

/// The copies of one sample: small sizes are repeated until the clock's own cost is negligible.
std::size_t copies_per_sample(std::size_t size_bytes) {
  constexpr std::size_t kSampleBytes = std::size_t{256} << 10;
  return std::max<std::size_t>(kSampleBytes / size_bytes, 1);
}

peer::Result measure(const peer::Options& options, std::size_t size_bytes) {
  peer::TouchedBuffer source(size_bytes, 1);
  peer::TouchedBuffer destination(size_bytes, 2);
  const std::size_t copies = copies_per_sample(size_bytes);
  const std::size_t warm_up = options.warm_up_for(size_bytes);
  const std::size_t rounds = warm_up + options.iterations_for(size_bytes);
  std::vector<double> samples_us;
  samples_us.reserve(rounds);
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto start = peer::Clock::now();
    for (std::size_t copy = 0; copy < copies; ++copy) {
      std::memcpy(destination.data(), source.data(), size_bytes);
      // Makes the compiler believe that the copy is read; otherwise it drops the copy.
      asm volatile("" : : "r"(destination.data()) : "memory");
    }
    const auto end = peer::Clock::now();
    if (round < warm_up) continue;
    samples_us.push_back(peer::elapsed_us(start, end) / static_cast<double>(copies));
  }
  return peer::summarize("memcpy", "copy", size_bytes, samples_us);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = peer::parse_options(
      argc, argv, {.begin_bytes = 1 << 10, .end_bytes = std::size_t{128} << 20});
  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) {
    results.push_back(measure(options, size_bytes));
  }
  peer::print_json("memcpy", results);
  return 0;
}
