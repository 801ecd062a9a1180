// SPDX-License-Identifier: Apache-2.0
// Tensors on a GPU are filled by work that may not have run yet. Each one knows behind the work of
// which stream its elements are there, so that other streams can wait for that on the GPU.
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
/// A stream by its number, as DLPack and `__cuda_array_interface__` have it; 0 is the legacy one.
[[nodiscard]] Stream stream_of(std::uintptr_t number);
/// The argument `stream`: None, an integer, or a stream of torch, CuPy or cuda.core. TypeError and
/// ValueError say what is legal.
[[nodiscard]] std::optional<Stream> stream_from(nb::handle argument);
/// By which C++ names it in this thread; nothing: the per-thread default stream.
[[nodiscard]] inline void* handle_of(const std::optional<Stream>& stream) {
  return stream ? stream->here() : kStreamPerThread;
}

/// `owner`, as that of memory of a GPU whose elements are there in the order of `stream`. Where
/// consumers are noted, they are there behind the work of those that have it, too.
[[nodiscard]] std::shared_ptr<const void> in_order_of(
    Stream stream, std::shared_ptr<const void> owner,
    std::shared_ptr<Consumers> consumers = nullptr);
/// The same memory, in that order.
[[nodiscard]] Tensor in_order_of(Stream stream, const Tensor& tensor);
/// Gives what a batch has on a GPU the order of `stream`, as handle_of() names it. A batch that was
/// put back keeps the order in which it arrived. Cost for a packed batch in host memory: a
/// comparison.
void set_order(const std::optional<Stream>& stream, TensorDict& batch,
               const std::shared_ptr<Consumers>& consumers = nullptr);
/// Nothing for elements that are there whatever the stream, and for host memory.
[[nodiscard]] std::optional<Stream> order_of(const Tensor& tensor);
/// A GPU whose streams were named here. Errors: those of Gpus::use(), as of one that is lost.
[[nodiscard]] Result<std::shared_ptr<detail::cuda::Gpu>> used_gpu(Device device);
/// Where those that work on its memory are noted; null: nowhere.
[[nodiscard]] std::shared_ptr<Consumers> consumers_of(const Tensor& tensor);

/// The GPU on which memory lies that an array says to be on one. `address` is not touched. Errors:
/// unsupported_device for memory of the host, managed memory, and an address that no GPU knows;
/// not_supported where there is no driver.
[[nodiscard]] Result<Device> gpu_of_address(const void* address);

/// Work that `after` receives from now on runs behind what `before` has now: on the GPU, nothing
/// waits here. Errors: invalid_argument for a stream that is being captured, those of the driver.
[[nodiscard]] Result<void> let_wait(Device device, Stream before, Stream after);

/// The stream on which a batch is to be read: `wanted`, else that of its first tensor on a GPU with
/// an order. It waits for those of the others, and for those of noted consumers. Nothing for a
/// batch that any stream may read.
/// Cost in a process that has seen no tensor on a GPU: one load.
[[nodiscard]] std::optional<Stream> stream_for(const TensorDict& batch,
                                               const std::optional<Stream>& wanted);

/// The batch without the order of its frozen memory, which pipes and publishers know as such then,
/// and do not copy. Nothing: it has none. Called with and without the GIL, behind stream_for().
/// Cost in a process that has seen no tensor on a GPU: one load.
[[nodiscard]] std::optional<TensorDict> with_bare_loans(const TensorDict& batch);

/// ValueError for a stream beside what is sent in place of a batch: it has no tensors on a GPU.
void refuse_stream(nb::handle data, const std::optional<Stream>& stream);

/// As long as it lives, this thread takes arrays on a GPU that have gaps as the copy without gaps
/// that their framework makes: for a batch that is sent.
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

/// UnsupportedDevice for a tensor on a GPU where `what` reads elements: it says what to do.
[[noreturn]] void refuse_gpu(const Tensor& tensor, const std::string& what);

}  // namespace tendon::python
