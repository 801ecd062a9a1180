// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

namespace tendon::test {

/// Leaves this process `spare` free descriptors as long as the object lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(int spare) {
    getrlimit(RLIMIT_NOFILE, &before_);
    // The kernel hands out the lowest numbers first.
    int number = 0;
    for (int missing = 0; missing <= spare; ++number)
      if (fcntl(number, F_GETFD) < 0) ++missing;
    const rlimit few{static_cast<rlim_t>(number - 1), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace tendon::test
