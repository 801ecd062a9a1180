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
/// What a check has numbers for; by Tendon's names and by those of nccl-tests.
inline const Names<DType> kDTypes = {{"i8", DType::i8},
                                     {"u8", DType::u8},
                                     {"i16", DType::i16},
                                     {"u16", DType::u16},
                                     {"i32", DType::i32},
                                     {"u32", DType::u32},
                                     {"i64", DType::i64},
                                     {"u64", DType::u64},
                                     {"f16", DType::f16},
                                     {"bf16", DType::bf16},
                                     {"f32", DType::f32},
                                     {"f64", DType::f64},
                                     {"f8_e4m3fn", DType::f8_e4m3fn},
                                     {"f8_e5m2", DType::f8_e5m2},
                                     {"int8", DType::i8},
                                     {"uint8", DType::u8},
                                     {"int32", DType::i32},
                                     {"uint32", DType::u32},
                                     {"int64", DType::i64},
                                     {"uint64", DType::u64},
                                     {"half", DType::f16},
                                     {"bfloat16", DType::bf16},
                                     {"float", DType::f32},
                                     {"double", DType::f64},
                                     {"f8e4m3", DType::f8_e4m3fn},
                                     {"f8e5m2", DType::f8_e5m2}};
inline const Names<ReduceKind> kReduceKinds = {
    {"sum", ReduceKind::sum},         {"prod", ReduceKind::product},
    {"product", ReduceKind::product}, {"min", ReduceKind::min},
    {"max", ReduceKind::max},         {"avg", ReduceKind::avg},
    {"bit_and", ReduceKind::bit_and}, {"bit_or", ReduceKind::bit_or},
    {"bit_xor", ReduceKind::bit_xor}};
/// The flags of nccl-tests, by both of their names.
inline void add_bench_collective(CLI::App* app, Collective collective, const std::string& help,
                                 int& exit_code) {
  auto options = std::make_shared<BenchCollectiveOptions>();
  options->collective = collective;
  CLI::App* verb = app->add_subcommand(std::string(to_string(collective)), help);
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
  add_choice(verb, "--path", options->transport, kTransports, "auto, shm or tcp [auto]");
  add_choice(verb, "--policy,--wait", options->policy, kPolicies,
             "latency, balanced or blocking [latency; balanced with more ranks than CPUs]");
  add_switch(verb, "--no-pin", options->pinning, Pinning::none, "Leave all ranks unpinned");
  add_switch(verb, "--insecure-plaintext", options->profile, Profile::plaintext,
             "Under a launcher: let the ranks be on several hosts, unprotected");
  add_json(verb, options->format);
  verb->callback([options, &exit_code] { exit_code = run_bench_collective(*options); });
}

}  // namespace tendon::cli
