// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "cli/bench.hpp"
#include "cli/benchmark.hpp"
#include "cli/output.hpp"

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.bench.peer";

Result<void> play(const std::string& role, const Value& parameters) {
  if (role == "collective") return play_collective_rank(parameters);
  if (role == "topic") return play_topic_readers(parameters);
  if (role == "fabric") return play_fabric_node(parameters);
  if (role == "group-detect") return play_detect_rank(parameters);
  const auto transport = choice<Transport>(parameters, "path");
  const auto policy = choice<WaitPolicy>(parameters, "policy");
  const Value* name = parameters.find("name");
  // A peer that is stopped on purpose must not be given up by its own lease.
  TENDON_TRY(context, Context::create({.name = name == nullptr ? "bench peer" : name->as_string(),
                                       .wait_policy = policy,
                                       .transport = transport,
                                       .streams = static_cast<std::uint32_t>(
                                           parameter(parameters, "streams").as_u64()),
                                       .lease = std::chrono::minutes(5)}));
  TENDON_TRY(pipe, Pipe::connect(context, parameter(parameters, "address").as_string(),
                                 std::chrono::seconds(30)));
  if (role == "pipe") return play_pipe_peer(pipe, parameters);
  if (role == "checkpoint") return play_checkpoint_peer(pipe, parameters);
  if (role == "idle") {
    // Connected, alive, and never reading: until the parent ends it.
    while (true) pause();
  }
  return Error{ErrorCode::invalid_argument, kWhere, fmt::format("there is no role '{}'", role)};
}

}  // namespace

int run_bench_peer(const std::string& role, const std::string& parameters) {
  auto values = parse_json(as_bytes(parameters));
  if (!values) return report(values.error(), Format::text);
  follow_parent(parameter(*values, "parent").as_i64());
  auto played = play(role, *values);
  return played ? 0 : report(played.error(), Format::text);
}

}  // namespace tendon::cli
