// SPDX-License-Identifier: Apache-2.0
//
// Measures one MPI collective on f32 as `tendon bench allreduce` and similar verbs do: the same
// buffers, calls back to back without a barrier, the figures of the slowest rank. Run it as `mpirun
// -n N mpi_collectives --op allreduce`.
#include <mpi.h>

#include <functional>
#include <numeric>

#include "peer.hpp"

namespace {

bool has_blocks(std::string_view op) {
  return op == "allgather" || op == "reducescatter" || op == "alltoall";
}

/// Returns the call on buffers of `count` elements, the size of one block if there is one for each
/// rank.
std::function<void()> call_of(std::string_view op, void* input, void* output, int count) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (op == "allreduce") {
    return [=] { MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  }
  if (op == "allgather") {
    return
        [=] { MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, MPI_COMM_WORLD); };
  }
  if (op == "reducescatter") {
    return
        [=] { MPI_Reduce_scatter_block(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  }
  if (op == "alltoall") {
    return [=] { MPI_Alltoall(input, count, MPI_FLOAT, output, count, MPI_FLOAT, MPI_COMM_WORLD); };
  }
  if (op == "broadcast") {
    return [=] { MPI_Bcast(output, count, MPI_FLOAT, 0, MPI_COMM_WORLD); };
  }
  if (op == "sendrecv") {
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    return [=] {
      MPI_Sendrecv(input, count, MPI_FLOAT, next, 0, output, count, MPI_FLOAT, previous, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
  }
  peer::fail("--op: '" + std::string(op) +
             "'; legal are allreduce, allgather, reducescatter, alltoall, broadcast, sendrecv");
}

double largest(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

peer::Result measure(const peer::Options& options, const std::string& op, std::size_t size_bytes,
                     int ranks) {
  const std::size_t unit =
      has_blocks(op) ? sizeof(float) * static_cast<std::size_t>(ranks) : sizeof(float);
  const std::size_t count = std::max<std::size_t>(size_bytes / unit, 1);
  if (count > INT32_MAX) peer::fail("-e: an MPI count ends at 2^31 - 1 elements");
  const std::size_t whole_bytes = count * unit;
  // Sums of zeros in place stay zero.
  peer::TouchedBuffer input(whole_bytes, 0);
  peer::TouchedBuffer output(whole_bytes, 0);
  const auto call = call_of(op, input.data(), output.data(), static_cast<int>(count));

  const std::size_t iterations = options.iterations_for(whole_bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<double> samples_us =
      peer::time_rounds(options.warm_up_for(whole_bytes), iterations, call);
  const double sum_us = std::accumulate(samples_us.begin(), samples_us.end(), 0.0);
  peer::Result result = peer::summarize("mpi", op, whole_bytes, samples_us);
  result.latency_us_p50 = largest(result.latency_us_p50);
  result.latency_us_p99 = largest(result.latency_us_p99);
  result.more = {{"latency_us_min", largest(samples_us.front())},
                 {"latency_us_mean", largest(sum_us / static_cast<double>(iterations))},
                 {"ranks", ranks}};
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  // `tendon bench` chooses the same counts.
  const auto options = peer::parse_options(argc, argv,
                                           {.begin_bytes = 8,
                                            .end_bytes = std::size_t{64} << 20,
                                            .factor = 8,
                                            .least_warm_up = 5,
                                            .traffic_bytes = std::size_t{1} << 30},
                                           {"--op"});
  const std::string op = options.extra_or("--op", "allreduce");
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes())
    results.push_back(measure(options, op, size_bytes, ranks));
  if (rank == 0) peer::print_json("mpi_collectives", results);
  MPI_Finalize();
  return 0;
}
