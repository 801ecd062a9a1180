// SPDX-License-Identifier: Apache-2.0
// The page tendon(1), made of what the parser knows of the verbs.
#pragma once

#include <string>
#include <vector>

namespace tendon::cli {

struct ManualOption {
  std::string names;  ///< "-o, --output", or "FILE" for what has no flag
  std::string value;  ///< "TEXT"; empty for a switch and for what has no flag
  std::string help;
};

/// A verb with what it takes and the verbs below it; the command itself is the first.
struct ManualVerb {
  std::string name;
  std::string help;
  std::vector<ManualOption> arguments;  ///< in their order
  std::vector<ManualOption> flags;
  std::vector<ManualVerb> verbs;
};

/// The page, in the macros of man(7).
[[nodiscard]] std::string manual_page(const ManualVerb& command);
/// Hidden, for the build: prints it.
[[nodiscard]] int run_manual(const ManualVerb& command);

}  // namespace tendon::cli
