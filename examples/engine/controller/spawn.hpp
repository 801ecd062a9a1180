// SPDX-License-Identifier: Apache-2.0
// Starts and ends child processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace engine {

/// Splits a command at blanks.
[[nodiscard]] std::vector<std::string> words_of(const std::string& command);

/// Starts a program with `input` as its standard input (-1: none). It has a process group of its
/// own, so that Ctrl-C at a terminal reaches only the controller, and no blocked signals.
[[nodiscard]] tendon::Result<pid_t> spawn(std::vector<std::string> words, int input = -1);

/// Returns its status, in the format of waitpid().
int kill_and_reap(pid_t pid);

}  // namespace engine
