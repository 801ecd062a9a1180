// SPDX-License-Identifier: Apache-2.0
// Pending work may still fill the tensors on a GPU. Each tensor knows the stream whose work fills
// it, so that other streams can wait for that on the GPU.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <tendon/memory/storage.hpp>
#include <tendon/pipe/pipe_options.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "consumers.hpp"
#include "cuda/gpu.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The legacy default stream: it waits for all blocking streams, and they for it.
[[nodiscard]] Stream legacy_stream();
/// A stream by its number in DLPack and `__cuda_array_interface__`; 0 is the legacy one.
[[nodiscard]] Stream stream_of(std::uintptr_t number);
/// Reads the argument `stream`: None, an integer, or a stream of torch, CuPy or cuda.core.
/// TypeError and ValueError list the legal ones.
[[nodiscard]] std::optional<Stream> stream_from(nb::handle argument);
/// The handle by which C++ names the stream in this thread; nullopt means the per-thread default
/// stream.
[[nodiscard]] inline void* handle_of(const std::optional<Stream>& stream) {
  return stream ? stream->here() : kStreamPerThread;
}

/// Returns `owner` for memory of a GPU whose elements are ready in the order of `stream`. If
/// consumers are noted, the elements are ready after the work of those consumers too.
[[nodiscard]] std::shared_ptr<const void> in_order_of(
    Stream stream, std::shared_ptr<const void> owner,
    std::shared_ptr<Consumers> consumers = nullptr);
/// The same memory in the order of `stream`.
[[nodiscard]] Tensor in_order_of(Stream stream, const Tensor& tensor);
/// Sets the order of a batch's tensors on a GPU to `stream`, as handle_of() names it. A batch that
/// was put back keeps the order of its arrival. Cost for a packed batch in host memory: a
/// comparison.
void set_order(const std::optional<Stream>& stream, TensorDict& batch,
               const std::shared_ptr<Consumers>& consumers = nullptr);
/// nullopt for host memory, and for elements that are ready on every stream.
[[nodiscard]] std::optional<Stream> order_of(const Tensor& tensor);
/// A GPU whose streams were named here. Errors: those of Gpus::use(), such as a lost GPU.
[[nodiscard]] Result<std::shared_ptr<detail::cuda::Gpu>> used_gpu(Device device);
/// The notes of the consumers of its memory; null: none are kept.
[[nodiscard]] std::shared_ptr<Consumers> consumers_of(const Tensor& tensor);

/// The GPU that has the memory at `address`, which is not accessed. Errors: unsupported_device for
/// host memory, managed memory, and an address that no GPU knows; not_supported without a driver.
[[nodiscard]] Result<Device> gpu_of_address(const void* address);

/// Makes later work on `after` run behind the present work of `before`, on the GPU; the caller does
/// not wait. Errors: invalid_argument for a stream that is being captured, those of the driver.
[[nodiscard]] Result<void> let_wait(Device device, Stream before, Stream after);

/// The stream that reads a batch: `wanted`, else that of its first tensor on a GPU with an order.
/// It waits for the streams of the other tensors and of noted consumers. nullopt if any stream may
/// read the batch. Cost in a process that has seen no tensor on a GPU: one load.
[[nodiscard]] std::optional<Stream> stream_for(const TensorDict& batch,
                                               const std::optional<Stream>& wanted);

/// The batch without the order of its frozen memory, so that pipes and publishers recognize that
/// memory and do not copy it. nullopt if it has none. Called with and without the GIL, after
/// stream_for(). Cost in a process that has seen no tensor on a GPU: one load.
[[nodiscard]] std::optional<TensorDict> with_bare_loans(const TensorDict& batch);

/// ValueError for a stream with data that is not a batch: it has no tensors on a GPU.
void refuse_stream(nb::handle data, const std::optional<Stream>& stream);

/// While it lives, this thread replaces arrays on a GPU that have gaps with their framework's copy
/// without gaps, for a batch that is sent.
class GapsAreCopied {
 public:
  GapsAreCopied();
  GapsAreCopied(const GapsAreCopied&) = delete;
  GapsAreCopied& operator=(const GapsAreCopied&) = delete;
  ~GapsAreCopied();
  [[nodiscard]] static bool here() noexcept;

 private:
  const bool before_;
};

/// Raises UnsupportedDevice for a tensor on a GPU where `what` reads elements; the text has the
/// remedy.
[[noreturn]] void refuse_gpu(const Tensor& tensor, const std::string& what);

}  // namespace tendon::python
