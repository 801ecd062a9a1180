// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/embedded.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {

int run_completion() {
  fmt::print("{}", bash_completion());
  return 0;
}

}  // namespace tendon::cli
