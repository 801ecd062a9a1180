// SPDX-License-Identifier: Apache-2.0
// The page tendon(1), made from the parser's description of the verbs.
#pragma once

#include <string>
#include <vector>

namespace tendon::cli {

struct ManualOption {
  std::string names;  ///< "-o, --output", or "FILE" for an argument without a flag
  std::string value;  ///< "TEXT"; empty for a switch and for an argument without a flag
  std::string help;
};

/// A verb with its arguments and flags and the verbs below it; the command itself is the first.
struct ManualVerb {
  std::string name;
  std::string help;
  std::vector<ManualOption> arguments;  ///< in their order
  std::vector<ManualOption> flags;
  std::vector<ManualVerb> verbs;
};

/// The page, in the macros of man(7).
[[nodiscard]] std::string manual_page(const ManualVerb& command);
/// Prints the page. Hidden: for the build.
[[nodiscard]] int run_manual(const ManualVerb& command);

}  // namespace tendon::cli
