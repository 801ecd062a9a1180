// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/embedded.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {

void add_completion(CLI::App& app, int& exit_code) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "completion", "Prints a completion script: source <(tendon completion bash)");
  verb->add_option("SHELL", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  verb->callback([shell, &exit_code] {
    fmt::print("{}", bash_completion());
    exit_code = 0;
  });
}

}  // namespace tendon::cli
