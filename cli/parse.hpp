// SPDX-License-Identifier: Apache-2.0
// Reads the words that a program was started with, and runs the verb that they name.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <tendon/core/error.hpp>
#include <vector>

#include "cli/output.hpp"

namespace tendon::cli {

/// "tendon bench: there is no verb 'pipes'; its verbs are: pipe, ...". Empty if no verb is unknown.
inline std::string describe_unknown_verb(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* last = &app;
  for (; !last->get_subcommands().empty(); path += " " + last->get_name())
    last = last->get_subcommands().front();
  const std::vector<std::string> words = last->remaining();
  if (last->get_require_subcommand_min() == 0 || words.empty() || words.front().starts_with('-'))
    return {};
  std::vector<std::string> verbs;
  for (const CLI::App* verb : last->get_subcommands({}))
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());  // hidden verbs are left out
  return fmt::format("{}: there is no verb '{}'; its verbs are: {}", path, words.front(),
                     fmt::join(verbs, ", "));
}

/// Runs the callbacks of the verbs that `argv` names, or says on stderr which word is wrong.
/// Returns `exit_code`, which the verb has set, or the code of wrong arguments.
[[nodiscard]] inline int parse_and_run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::string wrong_verb = describe_unknown_verb(app);
    say(wrong_verb.empty() ? fmt::format("{}: {}", app.get_name(), error.what()) : wrong_verb);
    say(fmt::format("Run `{0} --help`, or `{0} VERB --help`.", app.get_name()));
    return error_info(ErrorCode::invalid_argument).exit_code;
  }
  return exit_code;
}

}  // namespace tendon::cli
