// SPDX-License-Identifier: Apache-2.0
// The gather kernel: each of its threads does here what it does on a GPU.
#include <bit>
#include <cstring>

#include "cuda/gather_table.hpp"
#include "support/cuda/double.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

using v0::detail::cuda::GatherEntry;
using v0::detail::cuda::GatherTable;

/// Translates the addresses of the entry to those of the double. False: the GPU may not reach them,
/// and the context is lost.
bool reach(GatherEntry& entry) {
  if (entry.size_bytes == 0) return true;
  const void* const from = double_reads(entry.source, entry.size_bytes);
  void* const to = from == nullptr ? nullptr : double_writes(entry.destination, entry.size_bytes);
  entry.source = std::bit_cast<std::uintptr_t>(from);
  entry.destination = std::bit_cast<std::uintptr_t>(to);
  return to != nullptr;
}

void gather(void* const* parameters, const Grid& grid) {
  GatherTable table;
  std::memcpy(&table, parameters[0], sizeof(table));
  for (unsigned entry = 0; entry < grid.blocks[1]; ++entry) {
    if (!reach(table.entries[entry])) return;
    for (unsigned chunk = 0; chunk < grid.blocks[0]; ++chunk)
      for (unsigned thread = 0; thread < grid.threads[0]; ++thread)
        gather_share(table, entry, chunk, thread);
  }
}

}  // namespace

Kernel gather_kernel() { return {gather, {sizeof(GatherTable)}}; }

}  // namespace tendon::cuda_double
