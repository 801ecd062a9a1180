// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::cli {

/// The main function of a program whose verbs report by cli/output.hpp. A closed stdout, a full
/// file or an exception becomes an error of the verb. Returns the exit code.
[[nodiscard]] int run_program(int argc, char** argv, int (*run)(int argc, char** argv));

}  // namespace tendon::cli
