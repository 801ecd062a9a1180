// SPDX-License-Identifier: Apache-2.0
// The hidden verb with which a program runs itself as the second process of a benchmark.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>
#include <utility>

#include "cli/benchmark.hpp"
#include "cli/output.hpp"
#include "cli/process.hpp"

namespace tendon::cli {

using PeerRoles = std::map<std::string, Result<void> (*)(const Value& parameters)>;

inline void add_peer_role(CLI::App& app, PeerRoles roles, int& exit_code) {
  struct Options {
    std::string role;
    std::string parameters;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(PeerProcess::kVerb, "The second process of a benchmark");
  verb->group("");
  verb->add_option("ROLE", options->role)->required()->check(CLI::IsMember(roles));
  verb->add_option("PARAMETERS", options->parameters)->required();
  verb->callback([options, roles = std::move(roles), &exit_code] {
    auto values = parse_json(as_bytes(options->parameters));
    if (!values) {
      exit_code = report(values.error(), Format::text);
      return;
    }
    follow_parent(parameter(*values, "parent").as_i64());
    auto played = roles.at(options->role)(*values);
    exit_code = played ? 0 : report(played.error(), Format::text);
  });
}

}  // namespace tendon::cli
