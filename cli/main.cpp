// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/version.hpp>
#include <vector>

#include "cli/bench.hpp"
#include "cli/bench_secure.hpp"
#include "cli/collective_flags.hpp"
#include "cli/flags.hpp"
#include "cli/key_flags.hpp"
#include "cli/manual.hpp"
#include "cli/parse.hpp"
#include "cli/peer_role.hpp"
#include "cli/program.hpp"
#include "cli/security_flags.hpp"
#include "cli/verbs.hpp"
#include "group/membership/agreement_message.hpp"

namespace tendon::cli {
namespace {

/// The flags that `send` and `recv` share.
template <class Options>
void add_transfer_flags(CLI::App* verb, Options& options) {
  add_choice<Transport>(verb, "--path", options.transport, "How bytes travel [automatic]");
  add_choice<ProgressStyle>(verb, "--progress", options.progress,
                            "What is said on stderr [automatic]");
  add_security_flags(verb, options.security);
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
  verb->add_option("--peer", options->security.peer,
                   "A name that the receiver's certificate has; this end shows its own, and no "
                   "key [the host of ADDR]")
      ->check(filled());
  add_choice<SendMode>(
      verb, "--mode", options->mode,
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
  add_switch(verb, "--force", options->existing, ExistingFile::replace, "Replace files that exist");
  verb->add_option("--timeout", options->timeout_s,
                   "Seconds to wait for a sender [no limit] and for each step after that [30]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  add_transfer_flags(verb, *options);
  verb->callback([options, &exit_code] { exit_code = run_recv(*options); });
}

/// The flags that every verb of the fabric shares.
void add_fabric_flags(CLI::App* verb, TopicOptions& options) {
  verb->add_option("--router", options.routers,
                   "Where a router of the fabric listens, HOST:PORT; once for each")
      ->allow_extra_args(false);
  add_switch(verb, "--background", options.discovery, DiscoveryNeed::background,
             "Begin without a router, which is tried each second");
  verb->add_option("--peer", options.peers,
                   "Where a node of the fabric listens, HOST:PORT; once for each")
      ->allow_extra_args(false);
  verb->add_option("--listen", options.listen, "Where nodes find this command, HOST:PORT");
  verb->add_option("--domain", options.domain,
                   "Nodes of one domain find each other [TENDON_DOMAIN, else default]");
  verb->add_option("--timeout", options.timeout_s, "Seconds for nodes to be found [5]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  add_choice<Transport>(verb, "--path", options.transport, "How bytes travel [automatic]");
  add_switch(verb, "--no-routed", options.routed, false, "No link through routers");
  add_switch(verb, "--insecure-plaintext", options.profile, Profile::plaintext,
             "Let nodes of other hosts and users in, unencrypted");
  add_json(verb, options.format);
}

void add_topic(CLI::App& app, int& exit_code) {
  CLI::App* topic = app.add_subcommand("topic", "Samples that nodes publish");
  topic->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help, auto run) {
    auto options = std::make_shared<TopicOptions>();
    CLI::App* verb = topic->add_subcommand(name, help);
    add_fabric_flags(verb, *options);
    verb->callback([options, run, &exit_code] { exit_code = run(*options); });
    return std::pair(verb, options);
  };
  const auto add_keys = [](const auto& added, bool required) {
    added.first->add_option("KEY", added.second->key, "A key, or a set: \"vision/**\"")
        ->required(required);
  };
  (void)add("list", "The keys on which nodes publish", run_topic_list);
  const auto info =
      add("info", "Publishers and subscribers, of all keys or of KEY", run_topic_info);
  add_keys(info, false);
  add_switch(info.first, "--why", info.second->detail, TopicDetail::why,
             "How each publisher of KEY is reached, or what was tried");
  const auto add_reader = [&](const std::string& name, const std::string& help, auto run) {
    auto added = add(name, help, run);
    add_keys(added, true);
    added.first->add_option("-n,--count", added.second->count, "End after so many samples");
    added.first
        ->add_option("--sample-timeout", added.second->sample_timeout_s,
                     "Seconds to wait for a sample [no limit]")
        ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
    return added;
  };
  const auto echo =
      add_reader("echo", "Prints samples, with statistics of their tensors", run_topic_echo);
  add_switch(echo.first, "--plain", echo.second->sources, TopicSources::plain_too,
             "Those of plain Zenoh peers, too");
  const auto measure = [](TopicMeasure what) {
    return [what](const TopicOptions& options) { return run_topic_measure(options, what); };
  };
  (void)add_reader("hz", "The rate of samples", measure(TopicMeasure::rate));
  (void)add_reader("bw", "The bandwidth of samples", measure(TopicMeasure::bandwidth));
  (void)add_reader("delay", "The age of samples, at the most", measure(TopicMeasure::delay));

  const auto [verb, options] =
      add("pub", "Publishes the tensors of a file, or its bytes", run_topic_pub);
  verb->add_option("KEY", options->key, "A key: \"vision/objects\"")->required();
  verb->add_option("FILE", options->file, "A safetensors file; any with --encoding")->required();
  verb->add_option("--rate", options->rate_hz, "Samples a second [1]")
      ->check(CLI::Range(1e-6, 1e6));
  verb->add_option("-n,--count", options->count, "End after so many samples");
  add_switch(verb, "--once", options->count, std::uint64_t{1}, "One sample");
  verb->add_option("--subscribers", options->subscriber_count,
                   "Begin when so many are there, within --timeout [1]");
  add_switch(verb, "--bare", options->sink, TopicSink::bare,
             "As a plain Zenoh peer: by Zenoh alone, without Tendon's attachment");
  verb->add_option("--encoding", options->encoding,
                   "Publish FILE's bytes as they are, which plain Zenoh peers see as this: "
                   "\"application/json\"");
}

void add_node(CLI::App& app, int& exit_code) {
  CLI::App* node = app.add_subcommand("node", "Nodes of a fabric");
  node->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help, auto run) {
    auto options = std::make_shared<TopicOptions>();
    CLI::App* verb = node->add_subcommand(name, help);
    add_fabric_flags(verb, *options);
    verb->callback([options, run, &exit_code] { exit_code = run(*options); });
    return std::pair(verb, options);
  };
  (void)add("list", "The names of the nodes that are found", run_node_list);
  const auto [verb, options] = add("info", "How a node is reached, and what it has", run_node_info);
  verb->add_option("NAME", options->node, "The node's name")->required();
}

void add_router(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RouterOptions>();
  CLI::App* verb = app.add_subcommand("router", "Where nodes of a fabric find each other");
  verb->add_option("--listen", options->listen,
                   "HOST:PORT or unix:/PATH; once for each [127.0.0.1:7447]")
      ->allow_extra_args(false);
  verb->add_option("--connect", options->connect, "Another router, HOST:PORT; once for each")
      ->allow_extra_args(false);
  add_switch(verb, "--insecure-plaintext", options->profile, Profile::plaintext,
             "Listen where other machines reach it: whoever connects sees names and keys");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_router(*options); });
}

void add_call(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CallOptions>();
  CLI::App* verb =
      app.add_subcommand("call", "Asks the responders of a key, and prints the answer");
  verb->add_option("KEY", options->key, "A key: \"arm/plan\"")->required();
  verb->add_option("FILE", options->file, "A safetensors file: the request [an empty one]");
  CLI::Option* output = verb->add_option("-o,--output", options->output_file,
                                         "Write the tensors of the answer to this file");
  verb->add_flag_callback(
          "--all", [options] { options->until = CallUntil::all_answers; },
          "Wait for the answer of each responder")
      ->excludes(output);
  add_fabric_flags(verb, *options);
  verb->callback([options, &exit_code] { exit_code = run_call(*options); });
}

/// `after_dashes` are the words from "--" on, which the parser has not seen.
void add_launch(CLI::App& app, std::span<char*> after_dashes, int& exit_code) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* verb = app.add_subcommand(
      "launch", "Starts the ranks of a program: tendon launch -n 4 -- PROGRAM ARGUMENTS...");
  verb->add_option("-n,--ranks", options->local_count, "Ranks on this node, 1 to 256")
      ->required()
      ->check(CLI::Range(1, static_cast<int>(detail::kMaxPlaces)));
  verb->add_option("--restart", options->restart_count,
                   "Start all ranks again after a failure, so many times at most [0]")
      ->check(CLI::Range(0, 1'000'000));
  verb->add_option("--grace", options->grace_s,
                   "Seconds for the other ranks to end by themselves after a failure [5]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  add_switch(verb, "--keep-going", options->on_failure, OnFailure::keep_going,
             "After a failure, let the other ranks work on");
  verb->add_option("--rendezvous", options->rendezvous,
                   "Where the ranks meet, HOST:PORT or unix:@NAME [chosen]");
  verb->add_option("--nodes", options->node_count, "Hosts that run this command together [1]")
      ->check(CLI::Range(1, 65536));
  verb->add_option("--node-rank", options->node_rank, "Which of them this one is [0]")
      ->check(CLI::Range(0, 65535));
  add_switch(verb, "--no-tag", options->tagging, Tagging::raw,
             "The ranks write to stdout and stderr themselves, without [rank N]");
  verb->add_option("--output-dir", options->output_folder,
                   "Write rank_N.out and rank_N.err there instead");
  add_json(verb, options->format);
  // The first word that is not a flag of this command begins the program's own words.
  verb->prefix_command();
  verb->callback([options, verb, after_dashes, &exit_code] {
    options->command = verb->remaining();
    // A second "--", or one behind the program's name, belongs to the program.
    const bool is_own = options->command.empty() && !after_dashes.empty();
    const auto words = after_dashes.subspan(is_own ? 1 : 0);
    options->command.insert(options->command.end(), words.begin(), words.end());
    exit_code = run_launch(*options);
  });
}

void add_info(CLI::App& app, int& exit_code) {
  auto format = std::make_shared<Format>(Format::text);
  CLI::App* verb = app.add_subcommand("info", "Build, paths, machine, settings and limits");
  add_json(verb, *format);
  // --help lists it; `info` without a word runs the verb itself.
  auto options = std::make_shared<InfoCollectivesOptions>();
  CLI::App* collectives =
      verb->add_subcommand("collectives", "Which algorithm a collective takes, and what decides");
  collectives->add_option("--ranks", options->ranks, "Ranks of the group [8]")
      ->check(CLI::Range(1, static_cast<int>(detail::kMaxPlaces)));
  collectives
      ->add_option("--hosts", options->hosts,
                   "Hosts they are on, shared out evenly [1, and one for each rank]")
      ->check(CLI::Range(1, static_cast<int>(detail::kMaxPlaces)));
  collectives
      ->add_option("--size", options->size_bytes,
                   "Bytes that are reduced or moved; K, M, G are powers of 1024 [8 to 64M]")
      ->transform(size_value());
  add_json(collectives, options->format);
  verb->callback([format, collectives, &exit_code] {
    if (!collectives->parsed()) exit_code = run_info(*format);
  });
  collectives->callback([options, format, &exit_code] {
    if (*format == Format::json) options->format = Format::json;
    exit_code = run_info_collectives(*options);
  });
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

/// The text that --help prints for a verb and for the verbs below it.
ManualVerb manual_of(const CLI::App& app) {
  ManualVerb verb{app.get_name(), app.get_description(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option == app.get_help_ptr()) continue;
    if (option->get_positional()) {
      verb.arguments.push_back({option->get_name(true), "", option->get_description()});
      continue;
    }
    // "FLOAT" for "FLOAT:FLOAT in [0 - 1]".
    const std::string type = option->get_expected_max() == 0 ? "" : option->get_type_name();
    verb.flags.push_back({CLI::detail::find_and_replace(option->get_name(false, true), ",", ", "),
                          type.substr(0, type.find(':')), option->get_description()});
  }
  for (const CLI::App* below : app.get_subcommands({}))
    if (!below->get_group().empty()) verb.verbs.push_back(manual_of(*below));
  return verb;
}

/// For the build and for packages; not in --help.
void add_manual(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("manual", "Prints the page tendon(1)");
  verb->group("");
  verb->callback([&app, &exit_code] { exit_code = run_manual(manual_of(app)); });
}

/// The rows of a benchmark by size.
template <class Options>
void add_sizes(CLI::App* verb, Options& options) {
  const auto size = size_value();
  verb->add_option("-b", options.begin_bytes, "Smallest size; K, M, G are powers of 1024 [8]")
      ->transform(size);
  verb->add_option("-e", options.end_bytes, "Largest size [128M]")->transform(size);
  verb->add_option("-f", options.factor, "From one size to the next [8]")
      ->check(CLI::Range(2, 1 << 20));
  verb->add_option("-n", options.iteration_count, "Iterations of each row [by the size]")
      ->check(CLI::PositiveNumber);
}

void add_bench_topic(CLI::App* bench, int& exit_code) {
  auto options = std::make_shared<BenchTopicOptions>();
  CLI::App* verb = bench->add_subcommand("topic", "What a publisher and its subscribers take");
  add_sizes(verb, *options);
  verb->add_option("--readers", options->reader_count, "Subscribers, each with its Context [1]")
      ->check(CLI::Range(1, 64));
  add_choice(verb, "--path", options->transport, kPaths, "shm or tcp [both]");
  add_choice<SendMode>(verb, "--mode", options->mode,
                       "How samples or messages are handed over [both]");
  add_switch(verb, "--fill", options->loans, LoanUse::filled,
             "Write every byte of a loan before it is handed over");
  add_choice<WaitPolicy>(verb, "--policy", options->policy, "How both processes wait [latency]");
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave both processes unpinned");
  verb->add_option("--listen", options->listen,
                   "Where the publisher listens, unencrypted: HOST:PORT [on 127.0.0.1]");
  verb->add_option("--router", options->router,
                   "Find each other by this router, unencrypted: HOST:PORT");
  verb->add_option("--readers-by", options->readers_by,
                   "A command that executes the second process: 'nsenter --net=FILE'");
  verb->add_option("--device", options->device, "A GPU that samples lie on and are received on");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_topic(*options); });
}

void add_bench_pipe(CLI::App* bench, int& exit_code) {
  auto options = std::make_shared<BenchPipeOptions>();
  CLI::App* verb = bench->add_subcommand("pipe", "Latency and bandwidth of a pipe, by size");
  add_sizes(verb, *options);
  verb->add_option("-w", options->warm_up_count, "Iterations before measuring [a tenth of -n]")
      ->check(CLI::PositiveNumber);
  add_choice<Transport>(verb, "--path", options->transport, "How bytes travel [shm and tcp]");
  add_choice<SendMode>(verb, "--mode", options->mode,
                       "How samples or messages are handed over [both]");
  add_choice<WaitPolicy>(verb, "--policy", options->policy, "How both processes wait [latency]");
  verb->add_option("--streams", options->streams, "Bulk connections of a tcp link [1]")
      ->check(CLI::Range(1, 16));
  add_switch(verb, "--check", options->check, Check::every_byte, "Verify every byte, both ways");
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave both processes unpinned");
  verb->add_option("--device", options->device, "A GPU that batches are sent from and arrive on");
  add_credential_flags(verb, options->security);
  verb->add_option("--peer", options->security.peer, "A name that the certificate has [127.0.0.1]")
      ->check(filled());
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_pipe(*options); });
}

void add_bench_secure(CLI::App* bench, int& exit_code) {
  auto options = std::make_shared<BenchSecureOptions>();
  CLI::App* verb = bench->add_subcommand("secure", "What the encryption of a link takes");
  add_choice<BenchLink>(verb, "--link", options->link,
                        "Between the processes; veth needs root, and limits the rate [loopback]");
  add_choice<SoftirqPlace>(verb, "--softirq", options->softirq,
                           "Whose CPU takes packets out of a veth [as the kernel likes]");
  add_choice<detail::secure::SealerKind>(verb, "--sealer", options->sealer,
                                         "What seals and opens records [automatic]");
  verb->add_option("--messages", options->messages,
                   "Sizes, with commas; from 1M on rates are measured, else times [64,4K,1M,16M]")
      ->delimiter(',')
      ->transform(size_value());
  verb->add_option("--rounds", options->rounds, "Rounds, in which the ways take turns [9]")
      ->check(CLI::Range(1, 1000));
  verb->add_option("-n", options->iteration_count, "Messages of a way in each round [by the size]")
      ->check(CLI::PositiveNumber);
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave both processes unpinned");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_secure(*options); });
}

void add_bench_collectives(CLI::App* bench, int& exit_code) {
  add_bench_collective(bench, Collective::all_reduce, "All ranks get the sum of all", exit_code);
  add_bench_collective(bench, Collective::all_gather, "All ranks get what each has", exit_code);
  add_bench_collective(bench, Collective::reduce_scatter, "Each rank gets its part of the sum",
                       exit_code);
  add_bench_collective(bench, Collective::all_to_all, "Each rank gets its part of each", exit_code);
  add_bench_collective(bench, Collective::broadcast, "All ranks get what one has", exit_code);
  add_bench_collective(bench, Collective::send_recv,
                       "Each rank sends to the next and receives from the one before", exit_code);
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmarks between processes");
  bench->require_subcommand(1);
  add_bench_pipe(bench, exit_code);
  add_bench_topic(bench, exit_code);
  add_bench_secure(bench, exit_code);
  add_bench_collectives(bench, exit_code);
  add_peer_role(app,
                {{"collective", play_collective_rank},
                 {"pipe", play_pipe_peer},
                 {"secure", play_secure_peer},
                 {"topic", play_topic_readers}},
                exit_code);
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

/// How many words this command's own parser reads: the program that `launch` starts has flags of
/// its own, which follow "--".
int own_word_count(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
}

int run(int argc, char** argv) {
  const int own_count = own_word_count(argc, argv);
  const std::span after_dashes(argv + own_count, argv + argc);
  CLI::App app("Moves tensors between processes and machines.", "tendon");
  app.set_version_flag("--version", fmt::format("tendon {}", kVersion));
  app.require_subcommand(1);
  app.footer("stdout is data, stderr is talk. Exit codes: docs/cli.md, or `tendon explain`.");
  int exit_code = 0;
  add_send(app, exit_code);
  add_recv(app, exit_code);
  add_bench(app, exit_code);
  add_launch(app, after_dashes, exit_code);
  add_topic(app, exit_code);
  add_node(app, exit_code);
  add_router(app, exit_code);
  add_call(app, exit_code);
  add_key(app, exit_code);
  add_info(app, exit_code);
  add_explain(app, exit_code);
  add_completion(app, exit_code);
  add_checkpoint_tools(app, exit_code);
  add_manual(app, exit_code);
  return parse_and_run(app, own_count, argv, exit_code);
}

}  // namespace
}  // namespace tendon::cli

int main(int argc, char** argv) { return tendon::cli::run_program(argc, argv, tendon::cli::run); }
