// SPDX-License-Identifier: Apache-2.0
// One worker of the engine, a program in C++: the last stage of the layout 1,2,1. worker.py handles
// all ranks of all layouts; the controller and the other worker see no difference.
//   engine_worker --controller ADDRESS --layout 1,2,1 --rank 1 --blocks N --checkpoint FILE
// It ends when the controller stops (exit code 0) or is lost. When the other worker is lost it
// forgets all sequences and waits for the next roster.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <tendon/control/worker.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <utility>
#include <vector>

#include "program/flags.hpp"
#include "program/payload.hpp"
#include "worker/llama_config.hpp"
#include "worker/stage.hpp"
#include "worker/stage_runner.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Error;
using tendon::ErrorCode;
using tendon::Result;

// Workers in Python import torch meanwhile; the controller times out before.
constexpr auto kJoinPatience = 600s;
constexpr auto kSendPatience = 60s;
// The layout of this worker.
constexpr tendon::ParallelSizes kSizes{.tensor = 1, .pipeline = 2, .kv = 1};

struct Settings {
  std::string controller;
  tendon::ParallelLayout layout;
  tendon::GlobalRank rank;
  std::uint32_t blocks = 0;
  std::string checkpoint;
};

Result<Settings> settings_of(const std::vector<std::string>& words) {
  TENDON_TRY(flags, engine::flags_of({{"--controller", ""},
                                      {"--layout", ""},
                                      {"--rank", ""},
                                      {"--blocks", ""},
                                      {"--checkpoint", ""}},
                                     words));
  for (const auto& [name, value] : flags) {
    if (value.empty()) return engine::wrong_flag(name + " is missing");
  }
  if (flags["--layout"] != "1,2,1") {
    return engine::wrong_flag(
        "--layout is '" + flags["--layout"] +
        "'; this worker runs the last stage of 1,2,1 alone: start engine.worker, the "
        "one in Python, for others");
  }
  if (flags["--rank"] != "1") {
    return engine::wrong_flag(
        "--rank is '" + flags["--rank"] +
        "'; this worker runs rank 1 of the layout 1,2,1 alone: start engine.worker, "
        "the one in Python, for rank 0");
  }
  TENDON_TRY(layout, tendon::ParallelLayout::make(kSizes));
  TENDON_TRY(blocks, engine::number_of(flags, "--blocks", 1, engine::kMaxBlocks));
  return Settings{.controller = flags["--controller"],
                  .layout = layout,
                  .rank = {1},
                  .blocks = blocks,
                  .checkpoint = flags["--checkpoint"]};
}

Result<void> run(tendon::Worker& worker, engine::StageRunner& runner, const tendon::Step& step) {
  engine::v1::StepInputs inputs;
  const tendon::Storage& payload = step.inputs.payload;
  if (!inputs.ParseFromArray(payload.data(), static_cast<int>(payload.size_bytes()))) {
    return Error{ErrorCode::corrupt_data, "engine.step",
                 "the payload of the step is no tendon.v1.StepInputs; controller and worker must "
                 "be of one version"};
  }
  TENDON_TRY(outputs, runner.run(inputs));
  if (!inputs.scheduler_output().seq_schedule_metadata_list().empty()) {
    worker.set_load(static_cast<double>(outputs.step_ns().compute()) / 1e6);
  }
  return worker.send_outputs({.schedule_id = step.inputs.schedule_id,
                              .rank = {},
                              .payload = engine::payload_of(outputs),
                              .agreement = outputs.tokens_hash()},
                             kSendPatience);
}

/// Serves until the controller stops (end_of_stream) or is lost (peer_lost).
Error serve(tendon::Worker& worker, engine::StageRunner& runner) {
  while (true) {
    Error cause;
    auto step = worker.next_step(tendon::Deadline::never());
    if (step.has_value()) {
      // A move may fail or a step may be invalid; the controller is told.
      auto done = run(worker, runner, *step);
      if (done.has_value()) continue;
      cause = std::move(done).error();
      std::cerr << "worker " << worker.rank().value << ": step " << step->inputs.schedule_id << ": "
                << cause.message() << std::endl;
    } else {
      cause = std::move(step).error();
      if (cause.code != ErrorCode::roster_closed) return cause;
    }
    runner.reset();
    if (auto back = worker.rebuild(cause, kJoinPatience); !back.has_value()) {
      return std::move(back).error();
    }
    runner.regroup(worker.groups());
  }
}

Result<void> work(const Settings& settings) {
  const std::uint32_t stage = settings.layout.sizes().pipeline - 1;
  TENDON_TRY(file, tendon::SafetensorsFile::open(settings.checkpoint));
  TENDON_TRY(config, engine::LlamaConfig::of(file.header()));
  TENDON_TRY(layers, settings.layout.layers_of(stage, config.layers));
  TENDON_TRY(opened, engine::Stage::open(std::move(file), config, layers, settings.blocks));
  TENDON_TRY(context,
             tendon::Context::create({.name = "worker " + std::to_string(settings.rank.value)}));
  TENDON_TRY(worker,
             tendon::Worker::connect(context, settings.controller, settings.layout, settings.rank,
                                     kJoinPatience, {.free_blocks = settings.blocks}));
  engine::StageRunner runner(config, std::move(opened), worker.groups(), settings.blocks);
  Error end = serve(worker, runner);
  if (end.code == ErrorCode::end_of_stream) return {};
  return end;
}

int say(const Error& error) {
  std::cerr << "engine_worker: " << error.message() << std::endl;
  return tendon::error_info(error.code).exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = settings_of({argv + 1, argv + argc});
  if (!settings.has_value()) return say(settings.error());
  const auto done = work(*settings);
  return done.has_value() ? 0 : say(done.error());
}
