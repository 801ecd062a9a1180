// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

#include "support/expect.hpp"

namespace tendon::test {

/// The kernel has put this thread of this process to sleep.
inline bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  // "tid (name) S ...": the name may contain anything, so from the right.
  const auto end_of_name = line.rfind(')');
  return end_of_name != std::string::npos && line.compare(end_of_name, 4, ") S ") == 0;
}

/// Waits until the kernel has put a thread of this process to sleep and leaves it there: seen so
/// many times in a row, between which others ran. False when patience ends first.
inline bool falls_asleep(pid_t thread) {
  int in_a_row = 0;
  return eventually([&] {
    in_a_row = is_asleep(thread) ? in_a_row + 1 : 0;
    std::this_thread::yield();
    return in_a_row == 500;
  });
}

}  // namespace tendon::test
