// SPDX-License-Identifier: Apache-2.0
// The verbs of the command. Each function adds one with its flags; when it was chosen its callback
// runs it and leaves the exit code.
#pragma once

namespace CLI {
class App;
}

namespace tendon::cli {

void add_info(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);

}  // namespace tendon::cli
