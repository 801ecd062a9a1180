// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/version.hpp>

#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Moves tensors between processes and machines.", "tendon");
  app.set_version_flag("--version", fmt::format("tendon {}", kVersion));
  app.require_subcommand(1);
  app.footer("stdout is data, stderr is talk. Exit codes: docs/cli.md, or `tendon explain`.");
  int exit_code = 0;
  add_info(app, exit_code);
  add_explain(app, exit_code);
  add_completion(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const bool unknown_verb = app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
    say(unknown_verb ? fmt::format("tendon: there is no verb '{}'", argv[1])
                     : fmt::format("tendon: {}", error.what()));
    say("Run `tendon --help`, or `tendon VERB --help`.");
    return error_info(ErrorCode::invalid_argument).exit_code;
  }
  return exit_code;
}

}  // namespace
}  // namespace tendon::cli

int main(int argc, char** argv) {
  // A closed stdout shows as a failed write, not as silent death in the middle of a transfer.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return tendon::cli::run(argc, argv);
  } catch (const tendon::Exception& exception) {
    return tendon::cli::report(exception.error(), tendon::cli::Format::text);
  } catch (const std::exception& exception) {
    const tendon::Error error{tendon::ErrorCode::internal, "cli.main", exception.what()};
    return tendon::cli::report(error, tendon::cli::Format::text);
  }
}
