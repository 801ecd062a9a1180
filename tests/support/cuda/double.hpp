// SPDX-License-Identifier: Apache-2.0
// The double of the CUDA driver: a shared library, libtendon_cuda_double.so, that
// TENDON_CUDA_LIBRARY names in tests. It exports the functions of cuda/driver_functions.def and
// keeps the rules of the real driver that programs break. The host cannot read an address of the
// device, nor the device one of the host. A read-only mapping is not written. Work on a stream runs
// later, in order; releasing calls wait for it. The double has no clock, and its memory is
// coherent.
//
// It reads these variables of the environment when it is loaded and at double_reset():
//
//   TENDON_CUDA_DOUBLE_DEVICES   the number of devices: 1
//   TENDON_CUDA_DOUBLE_UUIDS     their UUIDs, 32 hexadecimal digits each, with commas: 00..00,
//                                00..01 ... A descriptor of a device that is not among them is
//                                imported with 101, as one of another container
//   TENDON_CUDA_DOUBLE_VERSION   the answer of cuDriverGetVersion: 13000
//   TENDON_CUDA_DOUBLE_MISSING   functions that it does not export, with commas
//   TENDON_CUDA_DOUBLE_MEMORY    bytes that a process may have of each device: 1 GiB
//   TENDON_CUDA_DOUBLE_SEED      the seed by which streams hesitate before some of their work;
//                                0: they never do
//   TENDON_CUDA_DOUBLE_DELAY_US  the longest hesitation: 200
//   TENDON_CUDA_DOUBLE_IN_ORDER  1: the streams of a queue run their work in the order in which it
//                                was enqueued, whatever stream it is on
//   TENDON_CUDA_DOUBLE_STRICT    1: copies of host memory that is not registered are refused
//   TENDON_CUDA_DOUBLE_PINS      1: copies read the pages that registered memory had when it was
//                                registered, as a device does: after MADV_REMOVE the old ones
//   TENDON_CUDA_DOUBLE_FAIL      function=number[@passage] with commas: the answer of the function
//                                at that passage, or always. A number that loses a context loses
//                                that of the thread
//
// Queues: each stream uses one of the 8 queues of its context. A queue holds 1 024 entries at most,
// and an enqueue into a full one blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver_types.hpp"

// Entry points for tests, beside the functions of the driver; test::CudaDouble finds them.
#pragma GCC visibility push(default)
extern "C" {

/// Forgets contexts, memory and calls, and reads the environment anew. No stream may be at work.
void double_reset();

/// Returns how often the function was called since; null: all functions together.
std::uint64_t double_calls(const char* exported_name);

/// Acts as TENDON_CUDA_DOUBLE_FAIL for one function from now on; passage 0: always; status 0: no
/// longer.
void double_fail(const char* exported_name, int status, std::uint64_t passage);

/// Acts as TENDON_CUDA_DOUBLE_STRICT and TENDON_CUDA_DOUBLE_PINS from now on.
void double_host_memory(int strict, int pins);

/// Loses the primary context of a device: a sticky error.
void double_lose(int device, int status);

/// Acts as at the end of a process: each call answers CUDA_ERROR_DEINITIALIZED.
void double_deinitialise();

/// Runs `kernel(argument)`, a kernel of a test, in the order of the stream.
int double_launch(tendon::v0::detail::cuda::StreamHandle stream, void (*kernel)(void*),
                  void* argument);

/// Return the host's address for memory of the device, for kernels. Null, and the context is lost,
/// if the range is no memory of the device or may not be written.
const void* double_reads(std::uint64_t address, std::size_t bytes);
void* double_writes(std::uint64_t address, std::size_t bytes);

/// Sets the function that cuLaunchKernel runs for the entry `name` of any module. It receives
/// copies of the parameters, of the sizes in `parameter_bytes`.
void double_kernel(const char* name, void (*kernel)(void* const* parameters),
                   const std::size_t* parameter_bytes, std::size_t parameter_count);

/// Stand for cuStreamBeginCapture and cuStreamEndCapture, which Tendon itself never calls; the
/// second returns how many pieces of work were captured.
int double_begin_capture(tendon::v0::detail::cuda::StreamHandle stream, int mode);
int double_end_capture(tendon::v0::detail::cuda::StreamHandle stream, std::size_t* captured);

/// Counts the entries of all queues of a device that are not done.
std::size_t double_pending(int device);
}
#pragma GCC visibility pop
