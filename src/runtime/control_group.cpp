// SPDX-License-Identifier: Apache-2.0
#include "runtime/control_group.hpp"

#include <fstream>
#include <sstream>

namespace tendon::v0::detail {
namespace {

// Finds "memory" in "cpu,memory".
bool has_word(std::string_view list, std::string_view word) {
  return ("," + std::string(list) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

}  // namespace

std::vector<std::string> control_group_files(const ControlGroupLimit& limit,
                                             const ControlGroupPaths& paths) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& hierarchy, std::string group, std::string_view name) {
    // A group above the root that this process sees has no folder here.
    if (group.starts_with("/..")) group.clear();
    for (;; group.resize(group.rfind('/'))) {
      while (group.ends_with('/')) group.pop_back();
      files.push_back(hierarchy + group + "/" + std::string(name));
      if (group.find('/') == std::string::npos) return;
    }
  };
  // "0::/a/b" is the group of v2, "4:memory:/a/b" one of v1.
  std::ifstream membership(paths.membership);
  for (std::string line; std::getline(membership, line);) {
    std::istringstream words(line);
    std::string number;
    std::string controllers;
    std::string group;
    if (!std::getline(words, number, ':') || !std::getline(words, controllers, ':') ||
        !std::getline(words, group))
      continue;
    if (controllers.empty())
      add(paths.root, group, limit.unified);
    else if (!limit.controller.empty() && has_word(controllers, limit.controller))
      add(paths.root + "/" + std::string(limit.controller), group, limit.legacy);
  }
  return files;
}

}  // namespace tendon::v0::detail
