// SPDX-License-Identifier: Apache-2.0
// Processes of this one: how they begin and end.
#pragma once

#include <sys/types.h>

#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace engine {

/// The words of a command, with a blank between.
[[nodiscard]] std::vector<std::string> words_of(const std::string& command);

/// Starts a program with `input` as its standard input, -1: none; in a process group of its own, so
/// that Ctrl-C at a terminal reaches the controller alone, and with no blocked signals.
[[nodiscard]] tendon::Result<pid_t> spawn(std::vector<std::string> words, int input = -1);

/// Its status, as of waitpid().
int kill_and_reap(pid_t pid);

}  // namespace engine
