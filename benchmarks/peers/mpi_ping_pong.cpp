// SPDX-License-Identifier: Apache-2.0
//
// Ping-pong between two MPI ranks; one way is half a round. Run it as `mpirun -n 2 mpi_ping_pong`.
#include <mpi.h>

#include "peer.hpp"

namespace {

peer::Result measure(const peer::Options& options, std::size_t size_bytes, int rank) {
  if (size_bytes > INT32_MAX) peer::fail("-e: an MPI count ends at 2^31 - 1 bytes");
  const int count = static_cast<int>(size_bytes);
  // Two buffers, as in a program that keeps its outgoing data and receives other data.
  peer::TouchedBuffer outgoing(size_bytes, 1);
  peer::TouchedBuffer incoming(size_bytes, 2);
  const int other = 1 - rank;
  const auto send = [&] { MPI_Send(outgoing.data(), count, MPI_BYTE, other, 0, MPI_COMM_WORLD); };
  const auto receive = [&] {
    MPI_Recv(incoming.data(), count, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  };

  MPI_Barrier(MPI_COMM_WORLD);
  return peer::summarize_ping_pong(
      "mpi", "ping_pong", size_bytes,
      peer::time_rounds(options.warm_up_for(size_bytes), options.iterations_for(size_bytes), [&] {
        if (rank == 0) {
          send();
          receive();
        } else {
          receive();
          send();
        }
      }));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto options = peer::parse_options(
      argc, argv, {.begin_bytes = 8, .end_bytes = std::size_t{128} << 20, .factor = 4});
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) {
    peer::fail("this ping-pong needs exactly 2 ranks, it has " + std::to_string(ranks));
  }

  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) {
    results.push_back(measure(options, size_bytes, rank));
  }
  if (rank == 0) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(library, &length);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(strcspn(library, ",")), library);
    peer::print_json("mpi_ping_pong", results);
  }
  MPI_Finalize();
  return 0;
}
