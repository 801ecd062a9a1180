// SPDX-License-Identifier: Apache-2.0
// The benchmarks of the command: the options of each, the function that runs it, and the role of
// its second process. benchmarks/processes/ has more, which no user needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/group/reduce_op.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/profile.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/verbs.hpp"

namespace tendon::cli {

enum class Check : std::uint8_t { none, every_byte };
enum class Pinning : std::uint8_t { two_cpus, none };
/// The use of a loan before it is sent.
enum class LoanUse : std::uint8_t { untouched, filled };

struct BenchPipeOptions {
  std::uint64_t begin_bytes = 8;
  std::optional<std::uint64_t> end_bytes;  ///< 128 MiB, or begin_bytes if that is more
  std::uint64_t factor = 8;
  std::uint64_t iteration_count = 0;   ///< 0: depends on the size
  std::uint64_t warm_up_count = 0;     ///< 0: a tenth of the iterations
  std::optional<Transport> transport;  ///< without it, shm and tcp
  std::optional<SendMode> mode;        ///< without it, both on shm and copy on tcp
  WaitPolicy policy = WaitPolicy::latency;
  std::uint32_t streams = 1;
  Check check = Check::none;
  Pinning pinning = Pinning::two_cpus;
  std::string device;  ///< the GPU that holds sent and received batches; without it, host memory
  SecurityOptions security;
  Format format = Format::text;
};
[[nodiscard]] int run_bench_pipe(const BenchPipeOptions& options);

struct BenchTopicOptions {
  std::uint64_t begin_bytes = 8;
  std::optional<std::uint64_t> end_bytes;  ///< 128 MiB, or begin_bytes if that is more
  std::uint64_t factor = 8;
  std::uint64_t iteration_count = 0;  ///< 0: depends on the size
  std::uint64_t reader_count = 1;
  std::optional<Transport> transport;  ///< without it, shm and tcp
  std::optional<SendMode> mode;        ///< without it, both on shm and copy on tcp
  LoanUse loans = LoanUse::untouched;
  WaitPolicy policy = WaitPolicy::latency;
  Pinning pinning = Pinning::two_cpus;
  // Each of these makes the benchmark run as between hosts, unencrypted.
  std::string listen;      ///< where the publisher listens; without it, on 127.0.0.1
  std::string router;      ///< both processes find each other by it, and listen nowhere else
  std::string readers_by;  ///< a command that executes the second process: "nsenter --net=..."
  std::string device;  ///< the GPU that holds sent and received samples; without it, host memory
  Format format = Format::text;

  [[nodiscard]] bool between_hosts() const { return !listen.empty() || !router.empty(); }
};
[[nodiscard]] int run_bench_topic(const BenchTopicOptions& options);

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send_recv,
  // From the first half of the ranks to the second, in three ways.
  stage,        ///< send_to_stage
  stage_whole,  ///< each rank sends all of its tensor to its counterpart
  stage_first,  ///< the first rank sends all to the first of the second half, which broadcasts it
};
/// The names of the verbs.
[[nodiscard]] consteval std::array<Word<Collective>, 9> words_of(Collective) {
  using enum Collective;
  return {{{all_reduce, "allreduce"},
           {all_gather, "allgather"},
           {reduce_scatter, "reducescatter"},
           {all_to_all, "alltoall"},
           {broadcast, "broadcast"},
           {send_recv, "sendrecv"},
           {stage, "stage"},
           {stage_whole, "stage_whole"},
           {stage_first, "stage_first"}}};
}
/// Where the tensors of a collective lie: in private memory, or in the Context's pool.
enum class BenchMemory : std::uint8_t { ordinary, pool };
TENDON_WORDS(BenchMemory, ordinary, pool);

struct BenchCollectiveOptions {
  Collective collective = Collective::all_reduce;
  std::uint64_t begin_bytes = 8;
  std::optional<std::uint64_t> end_bytes;   ///< 64 MiB, or begin_bytes if that is more
  std::uint64_t factor = 8;                 ///< from one size to the next
  std::optional<std::uint64_t> step_bytes;  ///< instead of the factor
  std::uint64_t iteration_count = 0;        ///< 0: depends on the size
  std::uint64_t warm_up_count = 0;          ///< 0: a tenth of the iterations
  Check check = Check::every_byte;
  DType dtype = DType::f32;
  ReduceKind op = ReduceKind::sum;
  std::uint32_t root = 0;
  std::vector<BenchMemory> memories = {BenchMemory::ordinary};
  std::optional<std::uint32_t> ranks;  ///< to start; without it, those of the launcher, else 2
  Transport transport = Transport::automatic;
  Profile profile = Profile::local;  ///< used under a launcher
  std::optional<WaitPolicy> policy;  ///< latency, or balanced with more ranks than CPUs
  Pinning pinning = Pinning::two_cpus;
  Format format = Format::text;
};
[[nodiscard]] int run_bench_collective(const BenchCollectiveOptions& options);

// The roles of second processes.
[[nodiscard]] Result<void> play_pipe_peer(const Value& parameters);
[[nodiscard]] Result<void> play_collective_rank(const Value& parameters);
[[nodiscard]] Result<void> play_topic_readers(const Value& parameters);

}  // namespace tendon::cli
