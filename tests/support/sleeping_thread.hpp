// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

#include "support/expect.hpp"

namespace tendon::test {

/// True if the kernel has put this thread of this process to sleep.
inline bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  // The line is "tid (name) S ...". The name may contain anything, so this searches from the right.
  const auto end_of_name = line.rfind(')');
  return end_of_name != std::string::npos && line.compare(end_of_name, 4, ") S ") == 0;
}

/// Waits until the kernel has put a thread of this process to sleep and leaves it there. The thread
/// must be seen asleep several times in a row, while others run. False if patience ends first.
inline bool falls_asleep(pid_t thread) {
  int in_a_row = 0;
  return eventually([&] {
    in_a_row = is_asleep(thread) ? in_a_row + 1 : 0;
    std::this_thread::yield();
    return in_a_row == 500;
  });
}

}  // namespace tendon::test
