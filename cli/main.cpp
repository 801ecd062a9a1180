// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/version.hpp>
#include <tendon/observe/log.hpp>

#include "cli/bench.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

/// Longest duration a flag takes [s].
constexpr double kMaxTimeoutSeconds = 1e8;

template <class T>
using Names = std::map<std::string, T>;
const Names<Transport> kTransports = {
    {"auto", Transport::automatic}, {"shm", Transport::shm}, {"tcp", Transport::tcp}};
const Names<SendMode> kModes = {{"loan", SendMode::loan}, {"copy", SendMode::copy}};
const Names<WaitPolicy> kPolicies = {{"latency", WaitPolicy::latency},
                                     {"balanced", WaitPolicy::balanced},
                                     {"blocking", WaitPolicy::blocking}};
const Names<ProgressStyle> kStyles = {{"auto", ProgressStyle::automatic},
                                      {"lines", ProgressStyle::lines},
                                      {"off", ProgressStyle::off}};

// CLI11 calls a verb's callback after all of its flags were read, so that options live in the
// callback and are filled by then.

/// `flag` gives `target` the value `given`.
template <class T>
void add_switch(CLI::App* verb, const std::string& flag, T& target, T given,
                const std::string& help) {
  verb->add_flag_callback(
      flag, [&target, given] { target = given; }, help);
}

/// `flag` takes one of `names`. `target` may be an optional.
template <class Target, class T>
void add_choice(CLI::App* verb, const std::string& flag, Target& target, const Names<T>& names,
                const std::string& help) {
  verb->add_option_function<std::string>(
          flag, [&target, &names](const std::string& name) { target = names.at(name); }, help)
      ->check(CLI::IsMember(&names));
}

void add_json(CLI::App* verb, Format& format) {
  add_switch(verb, "--json", format, Format::json, "JSON on stdout");
}

/// What `send` and `recv` have in common.
template <class Options>
void add_transfer_flags(CLI::App* verb, Options& options) {
  add_choice(verb, "--path", options.transport, kTransports, "auto, shm or tcp [auto]");
  add_choice(verb, "--progress", options.progress, kStyles, "auto, lines or off [auto]");
  add_switch(verb, "--insecure-plaintext", options.profile, Profile::plaintext,
             "Other users and machines too; nothing is encrypted");
  add_json(verb, options.format);
}

void add_send(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SendOptions>();
  CLI::App* verb =
      app.add_subcommand("send", "Sends a safetensors file to `tendon recv`, verified end to end");
  verb->add_option("FILE", options->file, "A safetensors file")->required();
  verb->add_option("ADDR", options->address, "HOST:PORT, [IPV6]:PORT or unix:/PATH")->required();
  verb->add_option("--timeout", options->timeout_s,
                   "Seconds to wait for the receiver, and for each step after that [30]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  verb->add_option("--name", options->name, "The file's name at the receiver [that of FILE]");
  add_choice(verb, "--mode", options->mode, kModes,
             "loan: written where the peer reads; copy: sent from the mapped file [loan]");
  verb->add_option("--max-rate", options->max_rate_mb_per_s, "MB/s at most; 0 is no limit [0]")
      ->check(CLI::Range(0.0, 1e6));
  add_transfer_flags(verb, *options);
  verb->callback([options, &exit_code] { exit_code = run_send(*options); });
}

void add_recv(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RecvOptions>();
  CLI::App* verb =
      app.add_subcommand("recv", "Listens, takes a file from `tendon send`, verifies it and ends");
  verb->add_option("ADDR", options->address, "HOST:PORT (port 0: any), [IPV6]:PORT or unix:/PATH")
      ->required();
  verb->add_option("-o,--output", options->directory, "Directory for the file [.]");
  add_switch(verb, "--keep", options->duration, Duration::until_stopped,
             "Take one file after the other until Ctrl-C");
  add_switch(verb, "--force", options->existing, Existing::replace, "Replace files that exist");
  verb->add_option("--timeout", options->timeout_s,
                   "Seconds to wait for a sender [no limit] and for each step after that [30]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  add_transfer_flags(verb, *options);
  verb->callback([options, &exit_code] { exit_code = run_recv(*options); });
}

void add_info(CLI::App& app, int& exit_code) {
  auto format = std::make_shared<Format>(Format::text);
  CLI::App* verb = app.add_subcommand("info", "Build, paths, machine, settings and limits");
  add_json(verb, *format);
  verb->callback([format, &exit_code] { exit_code = run_info(*format); });
}

void add_explain(CLI::App& app, int& exit_code) {
  struct Options {
    std::string code;
    Format format = Format::text;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("explain", "What an error code means and what to do");
  verb->add_option("CODE", options->code, "TD-E0107, 107 or peer_lost; without it, all are listed");
  add_json(verb, options->format);
  verb->callback(
      [options, &exit_code] { exit_code = run_explain(options->code, options->format); });
}

void add_completion(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand(
      "completion", "Prints a completion script: source <(tendon completion bash)");
  verb->require_subcommand(1);
  verb->add_subcommand("bash", "For bash")->callback([&exit_code] {
    exit_code = run_completion();
  });
}

void add_bench_pipe(CLI::App* bench, int& exit_code) {
  auto options = std::make_shared<BenchPipeOptions>();
  CLI::App* verb = bench->add_subcommand("pipe", "Latency and bandwidth of a pipe, by size");
  const auto size = CLI::AsSizeValue(false);
  verb->add_option("-b", options->begin_bytes, "Smallest size; K, M, G are powers of 1024 [8]")
      ->transform(size);
  verb->add_option("-e", options->end_bytes, "Largest size [128M]")->transform(size);
  verb->add_option("-f", options->factor, "From one size to the next [8]")
      ->check(CLI::Range(2, 1 << 20));
  verb->add_option("-n", options->iteration_count, "Iterations of each row [by the size]")
      ->check(CLI::PositiveNumber);
  verb->add_option("-w", options->warm_up_count, "Iterations before measuring [a tenth of -n]")
      ->check(CLI::PositiveNumber);
  add_choice(verb, "--path", options->transport, kTransports, "auto, shm or tcp [shm and tcp]");
  add_choice(verb, "--mode", options->mode, kModes, "loan or copy [both]");
  add_choice(verb, "--policy", options->policy, kPolicies,
             "latency, balanced or blocking [latency]");
  verb->add_option("--streams", options->streams, "Bulk connections of a tcp link [1]")
      ->check(CLI::Range(1, 16));
  add_switch(verb, "--check", options->check, Check::every_byte, "Verify every byte, both ways");
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave both processes unpinned");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_pipe(*options); });
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmarks between two processes");
  bench->require_subcommand(1);
  add_bench_pipe(bench, exit_code);

  auto checkpoint_options = std::make_shared<BenchCheckpointOptions>();
  CLI::App* checkpoint =
      bench->add_subcommand("checkpoint", "Hands a safetensors file over, on each path");
  checkpoint->add_option("FILE", checkpoint_options->file, "A safetensors file")->required();
  checkpoint->add_option("-n", checkpoint_options->round_count, "Rounds of each row [5]")
      ->check(CLI::PositiveNumber);
  add_json(checkpoint, checkpoint_options->format);
  checkpoint->callback(
      [checkpoint_options, &exit_code] { exit_code = run_bench_checkpoint(*checkpoint_options); });

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
    CLI::App* verb = bench->add_subcommand(kind.name, kind.help);
    verb->add_option("-n", options->round_count, "Rounds of each row [50]")
        ->check(CLI::PositiveNumber);
    add_choice(verb, "--path", options->transport, kTransports, "auto, shm or tcp [shm and tcp]");
    add_json(verb, options->format);
    verb->callback([options, run = kind.run, &exit_code] { exit_code = run(*options); });
  }

  struct Peer {
    std::string role;
    std::string parameters;
  };
  auto peer_options = std::make_shared<Peer>();
  CLI::App* peer = bench->add_subcommand("peer", "The second process of a benchmark");
  peer->group("");
  peer->add_option("ROLE", peer_options->role)->required();
  peer->add_option("PARAMETERS", peer_options->parameters)->required();
  peer->callback([peer_options, &exit_code] {
    exit_code = run_bench_peer(peer_options->role, peer_options->parameters);
  });
}

/// For tools/demo.sh; not in --help.
void add_checkpoint_tools(CLI::App& app, int& exit_code) {
  struct Options {
    std::string first;
    std::string second;
    double size_mb = 91;
  };
  auto options = std::make_shared<Options>();
  CLI::App* make = app.add_subcommand("make-checkpoint", "Makes a safetensors file");
  make->group("");
  make->add_option("FILE", options->first)->required();
  make->add_option("--size-mb", options->size_mb)->check(CLI::Range(0.001, 1e6));
  make->callback(
      [options, &exit_code] { exit_code = run_make_checkpoint(options->first, options->size_mb); });
  CLI::App* compare = app.add_subcommand("compare-checkpoints", "Compares every tensor");
  compare->group("");
  compare->add_option("A", options->first)->required();
  compare->add_option("B", options->second)->required();
  compare->callback([options, &exit_code] {
    exit_code = run_compare_checkpoints(options->first, options->second);
  });
}

int run(int argc, char** argv) {
  CLI::App app("Moves tensors between processes and machines.", "tendon");
  app.set_version_flag("--version", fmt::format("tendon {}", kVersion));
  app.require_subcommand(1);
  app.footer("stdout is data, stderr is talk. Exit codes: docs/cli.md, or `tendon explain`.");
  int exit_code = 0;
  add_send(app, exit_code);
  add_recv(app, exit_code);
  add_bench(app, exit_code);
  add_info(app, exit_code);
  add_explain(app, exit_code);
  add_completion(app, exit_code);
  add_checkpoint_tools(app, exit_code);
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
  // What the library warns of, a verb reports as its error. TENDON_LOG brings it back.
  if (std::getenv("TENDON_LOG") == nullptr) tendon::set_log_callback(tendon::LogLevel::error, {});
  try {
    return tendon::cli::run(argc, argv);
  } catch (const tendon::Exception& exception) {
    return tendon::cli::report(exception.error(), tendon::cli::Format::text);
  } catch (const std::exception& exception) {
    const tendon::Error error{tendon::ErrorCode::internal, "cli.main", exception.what()};
    return tendon::cli::report(error, tendon::cli::Format::text);
  }
}
