// SPDX-License-Identifier: Apache-2.0
// The kernel that packs small pieces of memory of a GPU. tools/make_gather_ptx.py makes
// gather_ptx.hpp of it, so that no build of Tendon needs a compiler for GPUs.
#include "cuda/gather_table.hpp"

using tendon::v0::detail::cuda::gather_share;
using tendon::v0::detail::cuda::GatherTable;

// A block for each chunk (x) of each entry (y): one that lies behind the end of its entry does
// nothing.
extern "C" __global__ void tendon_gather(const GatherTable table) {
  gather_share(table, blockIdx.y, blockIdx.x, threadIdx.x);
}
