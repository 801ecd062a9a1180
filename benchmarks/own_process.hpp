// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace peer {

/// The CPU time of all threads of this process.
inline double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The "VmRSS", its peak "VmHWM" or "RssAnon" of this process, if the kernel reports it.
inline std::optional<std::uint64_t> status_kib(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word.size() != name.size() + 1 || !word.starts_with(name)) continue;
    std::uint64_t kib = 0;
    status >> kib;
    return kib;
  }
  return std::nullopt;
}

}  // namespace peer
