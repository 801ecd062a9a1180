// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "cli/embedded.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {

int run_completion() {
  print_text(std::string(bash_completion()));
  return 0;
}

}  // namespace tendon::cli
