// SPDX-License-Identifier: Apache-2.0
// `processes VERB`: the benchmarks of tools/bench*.py that start processes of their own and kill or
// count them. The benchmarks of `tendon bench` are for users, who compare machines.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "benchmarks/processes/verbs.hpp"
#include "cli/collective_flags.hpp"
#include "cli/flags.hpp"
#include "cli/parse.hpp"
#include "cli/peer_role.hpp"
#include "cli/program.hpp"
#include "group/membership/agreement_message.hpp"

namespace tendon::cli {
namespace {

void add_fabric(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BenchFabricOptions>();
  CLI::App* verb =
      app.add_subcommand("fabric", "A brain of 24 processes: what is lost, and what a node takes");
  verb->add_option("--seconds", options->seconds, "How long its nodes publish [60]")
      ->check(CLI::Range(1, 86400));
  add_choice(verb, "--path", options->transport, kPaths, "shm or tcp [both]");
  add_choice<FabricDiscovery>(verb, "--discovery", options->discovery,
                              "How nodes find each other [zenoh, if this build has it]");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_fabric(*options); });
}

void add_checkpoint(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BenchCheckpointOptions>();
  CLI::App* verb = app.add_subcommand("checkpoint", "Hands a safetensors file over, on each path");
  verb->add_option("FILE", options->file, "A safetensors file")->required();
  verb->add_option("-n", options->round_count, "Rounds of each row [5]")
      ->check(CLI::PositiveNumber);
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_checkpoint(*options); });
}

void add_robustness_flags(CLI::App* verb, BenchRobustnessOptions& options) {
  verb->add_option("-n", options.round_count, "Rounds of each row [50]")
      ->check(CLI::PositiveNumber);
  add_choice<Transport>(verb, "--path", options.transport, "How bytes travel [shm and tcp]");
  add_json(verb, options.format);
}

void add_detect_and_deadline(CLI::App& app, int& exit_code) {
  struct Kind {
    const char* name;
    const char* help;
    int (*run)(const BenchRobustnessOptions&);
  };
  for (const Kind& kind :
       {Kind{"detect", "From the death of a peer to the error that names it", run_bench_detect},
        Kind{"deadline", "How late calls return that run into their deadline",
             run_bench_deadline}}) {
    auto options = std::make_shared<BenchRobustnessOptions>();
    CLI::App* verb = app.add_subcommand(kind.name, kind.help);
    add_robustness_flags(verb, *options);
    verb->callback([options, run = kind.run, &exit_code] { exit_code = run(*options); });
  }
}

void add_group_detect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BenchGroupDetectOptions>();
  CLI::App* verb = app.add_subcommand(
      "group-detect",
      "From the death of a rank to its name, and to the next collective without it");
  verb->add_option("--ranks", options->ranks, "Ranks, 3 at least [3]")
      ->check(CLI::Range(3, static_cast<int>(detail::kMaxPlaces)));
  add_robustness_flags(verb, *options);
  verb->callback([options, &exit_code] { exit_code = run_bench_group_detect(*options); });
}

int run(int argc, char** argv) {
  CLI::App app("Benchmarks between processes, for developers.", "processes");
  app.require_subcommand(1);
  int exit_code = 0;
  add_fabric(app, exit_code);
  add_checkpoint(app, exit_code);
  add_detect_and_deadline(app, exit_code);
  add_group_detect(app, exit_code);
  add_bench_collective(&app, Collective::stage,
                       "The first half of the ranks has a tensor, the second half gets it",
                       exit_code);
  add_peer_role(app,
                {{"checkpoint", play_checkpoint_peer},
                 {"collective", play_collective_rank},
                 {"fabric", play_fabric_node},
                 {"group-detect", play_detect_rank},
                 {"idle", play_idle_peer}},
                exit_code);
  return parse_and_run(app, argc, argv, exit_code);
}

}  // namespace
}  // namespace tendon::cli

int main(int argc, char** argv) { return tendon::cli::run_program(argc, argv, tendon::cli::run); }
