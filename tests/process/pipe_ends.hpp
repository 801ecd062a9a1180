// SPDX-License-Identifier: Apache-2.0
// The parts of everything that starts a program and talks to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "core/fd.hpp"

namespace tendon::test {

/// After this time a hang becomes a failure with its place.
inline constexpr int kPatienceMs = 60'000;

/// The reading and the writing end.
inline std::pair<detail::OwnedFd, detail::OwnedFd> make_pipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {detail::OwnedFd(ends[0]), detail::OwnedFd(ends[1])};
}

}  // namespace tendon::test
