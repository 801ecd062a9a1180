// SPDX-License-Identifier: Apache-2.0
// The controller of the engine, a program: between the HTTP front and the workers.
//   engine_controller --front ADDRESS --layout TP,PP,KVP --blocks N --context N --vocabulary N
//                     [--workers ADDRESS] [--eos TOKEN] [--model NAME]
//                     [--start-workers "COMMAND with {rank} and {address}"]
//                     [--start-last-stage "COMMAND" for the ranks of the last stage instead]
//                     [--nursery COMMAND] [--step-sequences N] [--hang-timeout SECONDS]
//                     [--drain-timeout SECONDS]
// It prints "workers ADDRESS" and "front ADDRESS" when both accept connections. At SIGTERM or
// SIGINT it finishes the accepted requests, up to the drain timeout (30 s); a second signal ends it
// at once.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <limits>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <utility>
#include <vector>

#include "controller/engine.hpp"
#include "program/flags.hpp"

namespace {

using engine::Flags;
using tendon::Error;
using tendon::ErrorCode;
using tendon::Result;

constexpr std::uint32_t kMaxContext = 1U << 24;
constexpr std::uint32_t kMaxStepSequences = 256;
// The limit of processes; an engine runs on one host.
constexpr std::uint32_t kMaxWorkers = 128;

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  if (stop_signal.exchange(number) != 0) _exit(128 + number);
}

const Flags kDefaults{{"--workers", "127.0.0.1:0"},
                      {"--front", ""},
                      {"--layout", "1,1,1"},
                      {"--blocks", ""},
                      {"--context", ""},
                      {"--vocabulary", ""},
                      {"--eos", ""},
                      {"--model", "model"},
                      {"--start-workers", ""},
                      {"--nursery", ""},
                      {"--step-sequences", "32"},
                      {"--start-last-stage", ""},
                      {"--hang-timeout", "30"},
                      {"--drain-timeout", "30"}};

Result<tendon::ParallelLayout> layout_of(const std::string& text) {
  tendon::ParallelSizes sizes;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%u,%u,%u%c", &sizes.tensor, &sizes.pipeline, &sizes.kv, &rest) !=
      3) {
    return engine::wrong_flag("--layout is '" + text + "'; legal is TP,PP,KVP, such as 3,2,1");
  }
  TENDON_TRY(layout, tendon::ParallelLayout::make(sizes));
  if (layout.world_size() > kMaxWorkers) {
    return engine::wrong_flag("--layout is '" + text + "', a layout of " +
                              std::to_string(layout.world_size()) + " workers; legal is up to " +
                              std::to_string(kMaxWorkers));
  }
  return layout;
}

Result<engine::WorkerCommands> commands_of(const Flags& flags,
                                           const tendon::ParallelLayout& layout) {
  engine::WorkerCommands commands{.usual = flags.find("--start-workers")->second,
                                  .nursery = flags.find("--nursery")->second};
  const std::string& last = flags.find("--start-last-stage")->second;
  if (last.empty()) return commands;
  if (commands.usual.empty()) {
    return engine::wrong_flag(
        "--start-last-stage is given without --start-workers; legal is both or none");
  }
  for (std::uint32_t rank = 0; rank < layout.world_size(); ++rank) {
    TENDON_TRY(place, layout.place_of({rank}));
    if (place.pipeline == layout.sizes().pipeline - 1) commands.by_rank.emplace(rank, last);
  }
  return commands;
}

Result<engine::EngineOptions> options_of(const std::vector<std::string>& words) {
  TENDON_TRY(flags, engine::flags_of(kDefaults, words));
  if (flags["--front"].empty())
    return engine::wrong_flag("--front is missing; legal is an address");
  TENDON_TRY(layout, layout_of(flags["--layout"]));
  TENDON_TRY(blocks, engine::number_of(flags, "--blocks", 1, engine::kMaxBlocks));
  TENDON_TRY(context, engine::number_of(flags, "--context", 2, kMaxContext));
  TENDON_TRY(vocabulary, engine::number_of(flags, "--vocabulary", 1,
                                           std::numeric_limits<std::uint32_t>::max()));
  engine::SchedulerLimits limits{.blocks = blocks,
                                 .context = context,
                                 .vocabulary = vocabulary,
                                 .kv_size = layout.sizes().kv,
                                 .stages = layout.sizes().pipeline};
  if (!flags["--eos"].empty()) {
    TENDON_TRY(eos, engine::number_of(flags, "--eos", 0, vocabulary - 1));
    limits.eos = eos;
  }
  TENDON_TRY(step_sequences, engine::number_of(flags, "--step-sequences", 1, kMaxStepSequences));
  limits.step_sequences = step_sequences;
  TENDON_TRY(commands, commands_of(flags, layout));
  TENDON_TRY(hang_s, engine::number_of(flags, "--hang-timeout", 1, 86400));
  TENDON_TRY(drain_s, engine::number_of(flags, "--drain-timeout", 1, 86400));
  return engine::EngineOptions{.limits = limits,
                               .layout = layout,
                               .workers_address = flags["--workers"],
                               .front_address = flags["--front"],
                               .start_workers = std::move(commands),
                               .model = flags["--model"],
                               .hang_timeout = std::chrono::seconds(hang_s),
                               .drain_timeout = std::chrono::seconds(drain_s)};
}

int say(const Error& error) {
  std::cerr << "engine_controller: " << error.message() << "\n";
  return tendon::error_info(error.code).exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  auto options = options_of({argv + 1, argv + argc});
  if (!options.has_value()) return say(options.error());
  auto engine = engine::Engine::open(*std::move(options));
  if (!engine.has_value()) return say(engine.error());
  (void)std::signal(SIGTERM, on_signal);
  (void)std::signal(SIGINT, on_signal);
  std::cout << "workers " << (*engine)->workers_address() << "\nfront "
            << (*engine)->front_address() << std::endl;
  return (*engine)->run(stop_signal);
}
