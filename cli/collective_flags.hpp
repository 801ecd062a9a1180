// SPDX-License-Identifier: Apache-2.0
// The flags of a benchmark of one collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bench.hpp"
#include "cli/collective.hpp"
#include "cli/flags.hpp"
#include "group/membership/agreement_message.hpp"

namespace tendon::cli {

inline const Names<std::vector<BenchMemory>> kMemories = {
    {"ordinary", {BenchMemory::ordinary}},
    {"pool", {BenchMemory::pool}},
    {"both", {BenchMemory::ordinary, BenchMemory::pool}}};
inline const Names<Collective> kStageWays = {{"chunks", Collective::stage},
                                             {"whole", Collective::stage_whole},
                                             {"first", Collective::stage_first}};
/// The types that a check has numbers for, by Tendon's names and by those of nccl-tests.
inline const Names<DType> kDTypes = [] {
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
inline const Names<ReduceKind> kReduceKinds = [] {
  Names<ReduceKind> names = {{"prod", ReduceKind::product}};
  for (const auto& [kind, word] : kWords<ReduceKind>)
    if (kind != ReduceKind::premul_sum) names.emplace(word, kind);
  return names;
}();

/// The flags of nccl-tests, under both of their names.
inline void add_bench_collective(CLI::App* app, Collective collective, const std::string& help,
                                 int& exit_code) {
  auto options = std::make_shared<BenchCollectiveOptions>();
  options->collective = collective;
  CLI::App* verb = app->add_subcommand(std::string(word_of(collective)), help);
  verb->ignore_underscore();  // accepts "all_reduce", the library's name
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
  // Every verb accepts these flags, even where they mean nothing: a script passes the same to all.
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

}  // namespace tendon::cli
