// SPDX-License-Identifier: Apache-2.0
#include "support/secure/process_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/fd.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kChange = 0x5ac3'96e1'0f78'b4d2;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word ^ kChange;
}

}  // namespace

std::vector<Mapping> mappings() {
  std::ifstream lines("/proc/self/smaps");
  std::vector<Mapping> found;
  for (std::string line; std::getline(lines, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char readable = '-';
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &readable) == 3) {
      found.push_back({.begin = begin, .end = end, .name = line, .is_readable = readable == 'r'});
    } else if (line.starts_with("Rss:")) {
      found.back().is_present = line.find(" 0 kB") == std::string::npos;
    } else if (line.starts_with("VmFlags:")) {
      found.back().name += " " + line;
      std::istringstream words(line);
      for (std::string word; words >> word;) {
        if (word == "lo") found.back().is_locked = true;
        if (word == "dd") found.back().is_undumped = true;
        if (word == "wf") found.back().is_wiped = true;
      }
    }
  }
  return found;
}

Mapping mapping_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  for (Mapping& one : mappings())
    if (one.begin <= place && place < one.end) return std::move(one);
  return {};
}

std::size_t secret_memory_bytes() {
  std::size_t bytes = 0;
  for (const Mapping& one : mappings())
    if (one.is_secret()) bytes += one.end - one.begin;
  return bytes;
}

void SoughtBytes::add(Bytes secret) {
  for (std::size_t at = 0; at + 8 <= secret.size(); at += 8) {
    changed_.push_back(word_at(secret.data() + at));
    begins_[std::to_integer<std::size_t>(secret[at]) | std::to_integer<std::size_t>(secret[at + 1])
                                                           << 8] = true;
  }
}

template <class F>
void SoughtBytes::find_in(Bytes bytes, F found) const {
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at) {
    const std::byte* const here = bytes.data() + at;
    if (!begins_[std::to_integer<std::size_t>(here[0]) | std::to_integer<std::size_t>(here[1])
                                                             << 8])
      continue;
    if (std::ranges::find(changed_, word_at(here)) != changed_.end()) found(at);
  }
}

// Reads through /proc and not by pointer: another thread may unmap the memory meanwhile.
std::vector<std::string> SoughtBytes::places_outside() const {
  const detail::OwnedFd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::vector<std::byte> chunk(kChunkBytes);
  std::vector<std::string> places;
  for (const Mapping& one : mappings()) {
    if (one.is_secret() || !one.is_readable || !one.is_present) continue;
    // Each chunk begins with the last bytes of the previous one.
    for (std::uintptr_t at = one.begin; at < one.end; at += kChunkBytes - 7) {
      const ssize_t got = pread(memory.get(), chunk.data(), std::min(kChunkBytes, one.end - at),
                                static_cast<off_t>(at));
      if (got <= 0) break;
      find_in(Bytes(chunk).first(static_cast<std::size_t>(got)), [&](std::size_t offset) {
        char address[32];
        std::snprintf(address, sizeof address, "%lx", at + offset);
        places.push_back(std::string(address) + " in " + one.name);
      });
    }
  }
  return places;
}

std::size_t SoughtBytes::count_inside() const {
  std::size_t count = 0;
  for (const Mapping& one : mappings()) {
    if (!one.is_secret()) continue;
    const auto* const begin = reinterpret_cast<const std::byte*>(one.begin);
    find_in({begin, one.end - one.begin}, [&](std::size_t) { ++count; });
  }
  return count;
}

}  // namespace tendon::test
