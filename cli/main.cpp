// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/version.hpp>
#include <tendon/observe/log.hpp>
#include <vector>

#include "cli/bench.hpp"
#include "cli/collective.hpp"
#include "cli/manual.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/environment.hpp"
#include "group/membership/agreement_message.hpp"

namespace tendon::cli {
namespace {

/// Longest duration a flag takes [s].
constexpr double kMaxTimeoutSeconds = 1e8;

/// Bytes: "64K". CLI11's own takes "-5" for 2^64 - 5.
CLI::Validator size_value() {
  const CLI::AsSizeValue read(false);
  const auto checked = [read](std::string& text) {
    return text.starts_with('-') ? "'" + text + "' is negative" : read(text);
  };
  return {checked, read.get_description()};
}

template <class T>
using Names = std::map<std::string, T>;
const Names<Transport> kPaths = {{"shm", Transport::shm}, {"tcp", Transport::tcp}};
const Names<std::vector<BenchMemory>> kMemories = {
    {"ordinary", {BenchMemory::ordinary}},
    {"pool", {BenchMemory::pool}},
    {"both", {BenchMemory::ordinary, BenchMemory::pool}}};
const Names<Collective> kStageWays = {{"chunks", Collective::stage},
                                      {"whole", Collective::stage_whole},
                                      {"first", Collective::stage_first}};
/// What a check has numbers for; by Tendon's names and by those of nccl-tests.
const Names<DType> kDTypes = [] {
  Names<DType> names = {{"half", DType::f16},
                        {"float", DType::f32},
                        {"double", DType::f64},
                        {"f8e4m3", DType::f8_e4m3fn},
                        {"f8e5m2", DType::f8_e5m2}};
  for (const DType type : {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32,
                           DType::i64, DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64,
                           DType::f8_e4m3fn, DType::f8_e5m2}) {
    names.emplace(to_string(type), type);
    names.emplace(full_name(type), type);
  }
  return names;
}();
const Names<ReduceKind> kReduceKinds = [] {
  Names<ReduceKind> names = {{"prod", ReduceKind::product}};
  for (const auto& [kind, word] : kWords<ReduceKind>)
    if (kind != ReduceKind::premul_sum) names.emplace(word, kind);
  return names;
}();

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

/// `flag` takes one of the words of Enum. `target` may be an optional.
template <class Enum, class Target>
void add_choice(CLI::App* verb, const std::string& flag, Target& target, const std::string& help) {
  const std::string legal = "{" + legal_words<Enum>() + "}";
  const auto check = [legal](const std::string& word) {
    return parse_word<Enum>(word) ? std::string() : word + " not in " + legal;
  };
  verb->add_option_function<std::string>(
          flag, [&target](const std::string& word) { target = parse_word<Enum>(word).value(); },
          help)
      ->check(CLI::Validator(check, legal));
}

void add_json(CLI::App* verb, Format& format) {
  add_switch(verb, "--json", format, Format::json, "JSON on stdout");
}

/// What `send` and `recv` have in common.
template <class Options>
void add_transfer_flags(CLI::App* verb, Options& options) {
  add_choice<Transport>(verb, "--path", options.transport, "How bytes travel [automatic]");
  add_choice<ProgressStyle>(verb, "--progress", options.progress,
                            "What is said on stderr [automatic]");
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

/// What every verb of the fabric has in common.
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
  // The first word that is not a flag of ours begins the program's own words.
  verb->prefix_command();
  verb->callback([options, verb, after_dashes, &exit_code] {
    options->command = verb->remaining();
    // A second "--", or one behind the program's name, is the program's own.
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
  // --help lists it; without a word it is the verb itself.
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
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_topic(*options); });
}

void add_bench_fabric(CLI::App* bench, int& exit_code) {
  auto options = std::make_shared<BenchFabricOptions>();
  CLI::App* verb = bench->add_subcommand(
      "fabric", "A brain of 24 processes: what is lost, and what a node takes");
  verb->add_option("--seconds", options->seconds, "How long its nodes publish [60]")
      ->check(CLI::Range(1, 86400));
  add_choice(verb, "--path", options->transport, kPaths, "shm or tcp [both]");
  add_choice<FabricDiscovery>(verb, "--discovery", options->discovery,
                              "How nodes find each other [zenoh, if this build has it]");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_fabric(*options); });
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
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_pipe(*options); });
}

/// The flags of nccl-tests, by both of their names.
void add_bench_collective(CLI::App* bench, Collective collective, const std::string& help,
                          int& exit_code) {
  auto options = std::make_shared<BenchCollectiveOptions>();
  options->collective = collective;
  CLI::App* verb = bench->add_subcommand(std::string(word_of(collective)), help);
  verb->ignore_underscore();  // "all_reduce", as the library has it
  const auto size = size_value();
  verb->add_option("-b,--minbytes", options->begin_bytes,
                   "Smallest size; K, M, G are powers of 1024 [8]")
      ->transform(size);
  verb->add_option("-e,--maxbytes", options->end_bytes, "Largest size [64M]")->transform(size);
  CLI::Option* factor =
      verb->add_option("-f,--stepfactor", options->factor, "From one size to the next, times [8]")
          ->check(CLI::Range(2, 1 << 20));
  verb->add_option("-i,--stepbytes", options->step_bytes, "From one size to the next, plus [-f]")
      ->transform(size)
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->excludes(factor);
  verb->add_option("-n,--iters", options->iteration_count, "Calls of each row [by the size]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  verb->add_option("-w,--warmup_iters", options->warm_up_count,
                   "Calls before measuring [a tenth of -n]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  verb->add_option_function<int>(
          "-c,--check",
          [options](int check) { options->check = check == 0 ? Check::none : Check::every_byte; },
          "1: count wrong elements; 0: do not [1]")
      ->check(CLI::Range(0, 1));
  add_choice(verb, "-d,--datatype", options->dtype, kDTypes, "Type of the elements [f32]");
  // Where they mean nothing they are taken all the same: a script gives all verbs the same flags.
  add_choice(verb, "-o,--op", options->op, kReduceKinds,
             "allreduce, reducescatter: how elements are combined [sum]");
  verb->add_option("-r,--root", options->root, "broadcast: the rank that gives [0]");
  add_choice(verb, "--memory", options->memories, kMemories, "ordinary, pool or both [ordinary]");
  if (collective == Collective::stage) {
    add_choice(verb, "--way", options->collective, kStageWays,
               "chunks: send_to_stage; whole: each sends all to its counterpart; first: the first "
               "to the first, which broadcasts [chunks]");
  }
  verb->add_option("--ranks", options->ranks,
                   collective == Collective::stage
                       ? "Ranks to start, an even number [4; under a launcher its own]"
                       : "Ranks to start [2; under a launcher its own]")
      ->check(CLI::Range(1, static_cast<int>(detail::kMaxPlaces)));
  add_choice<Transport>(verb, "--path", options->transport, "How bytes travel [automatic]");
  add_choice<WaitPolicy>(verb, "--policy,--wait", options->policy,
                         "How ranks wait [latency; balanced with more ranks than CPUs]");
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave all ranks unpinned");
  add_switch(verb, "--insecure-plaintext", options->profile, Profile::plaintext,
             "Under a launcher: let the ranks be on several hosts, unprotected");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_collective(*options); });
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
  add_bench_collective(bench, Collective::stage,
                       "The first half of the ranks has a tensor, the second half gets it",
                       exit_code);

  auto options = std::make_shared<BenchGroupDetectOptions>();
  CLI::App* verb = bench->add_subcommand(
      "group-detect",
      "From the death of a rank to its name, and to the next collective without it");
  verb->add_option("-n", options->round_count, "Rounds of each row [50]")
      ->check(CLI::PositiveNumber);
  verb->add_option("--ranks", options->ranks, "Ranks, 3 at least [3]")
      ->check(CLI::Range(3, static_cast<int>(detail::kMaxPlaces)));
  add_choice<Transport>(verb, "--path", options->transport, "How bytes travel [shm and tcp]");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_group_detect(*options); });
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmarks between processes");
  bench->require_subcommand(1);
  add_bench_pipe(bench, exit_code);
  add_bench_topic(bench, exit_code);
  add_bench_fabric(bench, exit_code);
  add_bench_collectives(bench, exit_code);

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
    add_choice<Transport>(verb, "--path", options->transport, "How bytes travel [shm and tcp]");
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

/// How many words this command's own parser gets: what `launch` starts has flags of its own, which
/// follow "--".
int own_word_count(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
}

/// "tendon bench: there is no verb 'pipes'; its verbs are: pipe, ...": empty if no verb is unknown.
std::string describe_unknown_verb(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* last = &app;
  for (; !last->get_subcommands().empty(); path += " " + last->get_name())
    last = last->get_subcommands().front();
  const std::vector<std::string> words = last->remaining();
  if (last->get_require_subcommand_min() == 0 || words.empty() || words.front().starts_with('-'))
    return {};
  std::vector<std::string> verbs;
  for (const CLI::App* verb : last->get_subcommands({}))
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());  // not a hidden one
  return fmt::format("{}: there is no verb '{}'; its verbs are: {}", path, words.front(),
                     fmt::join(verbs, ", "));
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
  add_info(app, exit_code);
  add_explain(app, exit_code);
  add_completion(app, exit_code);
  add_checkpoint_tools(app, exit_code);
  add_manual(app, exit_code);
  try {
    app.parse(own_count, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::string wrong_verb = describe_unknown_verb(app);
    say(wrong_verb.empty() ? fmt::format("tendon: {}", error.what()) : wrong_verb);
    say("Run `tendon --help`, or `tendon VERB --help`.");
    return error_info(ErrorCode::invalid_argument).exit_code;
  }
  return exit_code;
}

// Otherwise the next file or socket would get the number of a closed stdout, and what is printed.
void reserve_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest number that is free; nothing can be written to it.
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);
  }
}

}  // namespace
}  // namespace tendon::cli

int main(int argc, char** argv) {
  // A closed stdout shows as a failed write, not as silent death in the middle of a transfer.
  std::signal(SIGPIPE, SIG_IGN);
  // Likewise a file that grows beyond RLIMIT_FSIZE.
  std::signal(SIGXFSZ, SIG_IGN);
  tendon::cli::reserve_standard_descriptors();
  // What the library warns of, a verb reports as its error. TENDON_LOG brings it back.
  if (tendon::detail::environment_variable("TENDON_LOG").empty())
    tendon::set_log_callback(tendon::LogLevel::error, {});
  try {
    return tendon::cli::finish_output(tendon::cli::run(argc, argv));
  } catch (const tendon::Exception& exception) {
    return tendon::cli::report(exception.error(), tendon::cli::Format::text);
  } catch (const std::exception& exception) {
    const tendon::Error error{tendon::ErrorCode::internal, "cli.main", exception.what()};
    return tendon::cli::report(error, tendon::cli::Format::text);
  }
}
