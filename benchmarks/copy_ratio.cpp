// SPDX-License-Identifier: Apache-2.0
//
// Compares the routine that copies messages with memcpy, from 4 KiB to 1 GiB, aligned and not. They
// take turns, so that other load slows both alike.
#include "memory/large_copy.hpp"
#include "peers/peer.hpp"

namespace {

using tendon::Bytes;
using tendon::MutableBytes;

/// The offsets of the buffers in a line of 64 bytes.
struct Alignment {
  std::string name;
  std::size_t destination;
  std::size_t source;
};
const Alignment kAlignments[] = {{"aligned", 0, 0}, {"unaligned", 13, 7}};

void copy_by_tendon(MutableBytes to, Bytes from) {
  tendon::detail::copy_part(to, from, from.size());
}
void copy_by_memcpy(MutableBytes to, Bytes from) {
  std::memcpy(to.data(), from.data(), from.size());
}

/// Runs one routine several times and times only the second half, because the caches still hold the
/// other routine's data at first.
class Turns {
 public:
  Turns(MutableBytes to, Bytes from) : to_(to), from_(from) {}

  template <class Copy>
  double time_us(Copy copy) const {
    if (from_.size() <= kMostCachedBytes) run(copy);
    const auto start = peer::Clock::now();
    run(copy);
    return peer::elapsed_us(start, peer::Clock::now()) / static_cast<double>(copies_);
  }

 private:
  template <class Copy>
  void run(Copy copy) const {
    for (std::size_t i = 0; i < copies_; ++i) {
      copy(to_, from_);
      // Makes the compiler believe that the copy is read; otherwise it drops the copy.
      asm volatile("" : : "r"(to_.data()) : "memory");
    }
  }

  /// No cache holds more, so the other routine leaves no data behind.
  static constexpr std::size_t kMostCachedBytes = std::size_t{64} << 20;
  static constexpr std::size_t kTurnBytes = std::size_t{16} << 20;
  const MutableBytes to_;
  const Bytes from_;
  const std::size_t copies_ = std::max<std::size_t>(kTurnBytes / from_.size(), 1);
};

std::size_t rounds_for(const peer::Options& options, std::size_t size_bytes) {
  constexpr std::size_t kTraffic = std::size_t{2} << 30;
  if (options.iterations != 0) return options.iterations;
  return std::clamp<std::size_t>(kTraffic / std::max(size_bytes, std::size_t{16} << 20), 7, 51);
}

/// Runs the routine until it has chosen its method, or has had enough time for that.
void settle(MutableBytes to, Bytes from) {
  constexpr std::size_t kMostBytes = std::size_t{2} << 30;
  for (std::size_t done = 0; done <= kMostBytes; done += from.size()) copy_by_tendon(to, from);
}

void measure(const peer::Options& options, std::size_t size_bytes,
             std::vector<peer::Result>& results) {
  constexpr std::size_t kLineBytes = 64;
  peer::TouchedBuffer source(size_bytes + kLineBytes, 1);
  peer::TouchedBuffer destination(size_bytes + kLineBytes, 2);
  for (const Alignment& alignment : kAlignments) {
    const auto to = destination.span().subspan(alignment.destination, size_bytes);
    const auto from = source.span().subspan(alignment.source, size_bytes);
    if (size_bytes >= tendon::detail::LargeCopies::kFirstBytes.front()) settle(to, from);
    const Turns turns(to, from);
    std::vector<double> by_tendon_us;
    std::vector<double> by_memcpy_us;
    for (std::size_t round = 0; round < rounds_for(options, size_bytes); ++round) {
      by_tendon_us.push_back(turns.time_us(copy_by_tendon));
      by_memcpy_us.push_back(turns.time_us(copy_by_memcpy));
    }
    results.push_back(
        peer::summarize("routine", "copy_" + alignment.name, size_bytes, by_tendon_us));
    results.push_back(
        peer::summarize("routine", "memcpy_" + alignment.name, size_bytes, by_memcpy_us));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = peer::parse_options(
      argc, argv, {.begin_bytes = 4 << 10, .end_bytes = std::size_t{1} << 30, .factor = 4});
  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) measure(options, size_bytes, results);
  peer::print_json("copy_ratio", results);
  return 0;
}
