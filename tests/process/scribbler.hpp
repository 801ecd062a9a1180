// SPDX-License-Identifier: Apache-2.0
// Writes random words to memory that this process shares with its peers.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/fd.hpp"
#include "group/boards/board.hpp"
#include "transport/shm/control_block.hpp"

namespace tendon::test {

/// A thread that writes random words to every writable shared segment of this process, for as long
/// as it lives. Segments appear and disappear meanwhile, so it reads the list of mappings again and
/// again. It writes through /proc/self/mem, where a removed mapping is an error and not a signal.
class Scribbler {
 public:
  enum class Aim : std::uint8_t { boards_and_pools, everything };  ///< rings and counters too
  Scribbler(std::uint32_t seed, Aim aim) : random_(seed), aim_(aim), thread_([this] { run(); }) {}
  Scribbler(const Scribbler&) = delete;
  Scribbler& operator=(const Scribbler&) = delete;
  ~Scribbler() {
    stopping_ = true;
    thread_.join();
  }

 private:
  static constexpr std::uint64_t kBoardBytes =
      4096 + detail::Board::kRounds * detail::Board::kSlotBytes;
  struct Target {
    std::uint64_t begin;
    std::uint64_t size_bytes;
  };

  [[nodiscard]] std::vector<Target> targets() const {
    constexpr std::uint64_t kControlBytes = (sizeof(detail::ControlBlock) + 4095) / 4096 * 4096;
    std::vector<Target> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" rw-s ") == std::string::npos ||
          line.find("/memfd:tendon") == std::string::npos)
        continue;
      std::size_t dash = 0;
      const std::uint64_t begin = std::stoull(line, &dash, 16);
      const std::uint64_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
      if (aim_ == Aim::everything || end - begin != kControlBytes)
        found.push_back({begin, end - begin});
      // There is one board beside many pools and links.
      if (end - begin == kBoardBytes) found.resize(2 * found.size(), found.back());
    }
    return found;
  }

  void scribble(int memory, const Target& target) {
    // Most trusted words lie at the beginning of a segment; in a board, in its lines.
    using detail::Board;
    std::uint64_t at = random_() % (target.size_bytes / 8) * 8;
    if (target.size_bytes == kBoardBytes && random_() % 4 != 0) {
      const std::uint64_t line = (1 + random_() % Board::kRounds) * sizeof(Board::Line);
      // The whole line, or only the members' messages there about an operation that they agree on.
      const std::uint64_t skipped = lets_agree_ ? sizeof(Board::Line) - Board::kSmallBytes : 0;
      at = line + skipped + random_() % ((sizeof(Board::Line) - skipped) / 8) * 8;
    } else if (random_() % 2 == 0) {
      at %= 4096;
    }
    std::uint64_t word = (std::uint64_t{random_()} << 32) | random_();
    if (random_() % 4 == 0) word = ~std::uint64_t{0};
    if (random_() % 4 == 0) word = random_() % 64;
    (void)!pwrite(memory, &word, sizeof word, static_cast<off_t>(target.begin + at));
  }

  void run() {
    const detail::OwnedFd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    while (!stopping_) {
      const auto found = targets();
      if (found.empty()) continue;
      lets_agree_ = random_() % 4 != 0;
      for (int batch = 0; batch < 50 && !stopping_; ++batch) {
        // Pauses now and then, so that the others believe that all is well.
        const unsigned pauses = random_() % 64;
        for (unsigned i = 0; i < pauses; ++i) sched_yield();
        const Target& target = found[random_() % found.size()];
        for (int i = 0; i < 20; ++i) scribble(memory.get(), target);
      }
    }
  }

  std::mt19937 random_;
  const Aim aim_;
  bool lets_agree_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tendon::test
