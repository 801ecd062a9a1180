// SPDX-License-Identifier: Apache-2.0
#include "gpu_order.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "cuda/behind_stream.hpp"
#include "cuda/driver_errors.hpp"
#include "cuda/gpus.hpp"
#include "errors.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

namespace cuda = detail::cuda;

/// The deleter of owners with an order: std::get_deleter finds it.
struct Order {
  Stream stream;
  std::shared_ptr<const void> owner;
  std::shared_ptr<Consumers> consumers;  // null: consumers are not noted
  void operator()(const void* /*owned*/) noexcept { owner.reset(); }
};

std::atomic<bool> seen{false};
thread_local bool gaps_are_copied = false;

constexpr std::string_view kWhere = "python.stream";
constexpr std::chrono::seconds kFirstUse{30};

[[noreturn]] void refuse_stream(nb::handle argument) {
  raise_type_error("stream is " + shown(argument) +
                   "; legal are None, a handle of CUDA as an int, and a stream of torch, CuPy or "
                   "cuda.core");
}

std::uintptr_t number_from(nb::handle number, nb::handle argument) {
  std::uintptr_t value = 0;
  if (PyBool_Check(number.ptr()) != 0 || PyLong_Check(number.ptr()) == 0) refuse_stream(argument);
  if (nb::try_cast(number, value)) return value;
  raise_value_error("stream is " + shown(argument) + ", and no handle of CUDA has such a number");
}

Storage with_owner(const Storage& memory, std::shared_ptr<const void> owner) {
  return {std::move(owner), memory.data(),   memory.size_bytes(),
          memory.access(),  memory.origin(), memory.device()};
}

Result<Tensor> try_with_owner(const Tensor& tensor, std::shared_ptr<const void> owner) {
  const Storage& memory = tensor.storage();
  const auto offset = static_cast<std::uint64_t>(tensor.data() - memory.data());
  return Tensor::view(with_owner(memory, std::move(owner)), offset, tensor.dtype(), tensor.shape(),
                      tensor.strides());
}

Tensor with_owner(const Tensor& tensor, std::shared_ptr<const void> owner) {
  return unwrap(try_with_owner(tensor, std::move(owner)));
}

const Order* find_order(const Storage& memory) { return std::get_deleter<Order>(memory.owner()); }

/// The order of a loan's frozen memory; null for other memory.
const Order* find_order_of_frozen(const Storage& memory) {
  const Order* const order = find_order(memory);
  const bool is_frozen =
      order != nullptr && order->consumers != nullptr && memory.access() == Access::read_only;
  return is_frozen ? order : nullptr;
}

bool is_same(const Stream& a, const Stream& b) { return a.here() == b.here(); }

}  // namespace

Stream legacy_stream() { return stream_of(cuda::kLegacyStream); }

Stream stream_of(std::uintptr_t number) {
  return Stream(reinterpret_cast<cuda::StreamHandle>(number == 0 ? cuda::kLegacyStream : number));
}

std::optional<Stream> stream_from(nb::handle argument) {
  if (argument.is_none()) return std::nullopt;
  if (PyLong_Check(argument.ptr()) != 0) return stream_of(number_from(argument, argument));
  for (const char* const name : {"cuda_stream", "ptr"}) {
    const nb::object number = nb::getattr(argument, name, nb::none());
    if (!number.is_none()) return stream_of(number_from(number, argument));
  }
  const nb::object protocol = nb::getattr(argument, "__cuda_stream__", nb::none());
  if (protocol.is_none()) refuse_stream(argument);
  const nb::object pair = PyCallable_Check(protocol.ptr()) != 0 ? protocol() : protocol;
  if (PyTuple_Check(pair.ptr()) == 0 || nb::len(pair) != 2) refuse_stream(argument);
  return stream_of(number_from(nb::object(pair[1]), argument));
}

std::shared_ptr<const void> in_order_of(Stream stream, std::shared_ptr<const void> owner,
                                        std::shared_ptr<Consumers> consumers) {
  seen.store(true, std::memory_order_relaxed);
  const void* const owned = owner.get();
  return {owned, Order{stream, std::move(owner), std::move(consumers)}};
}

Tensor in_order_of(Stream stream, const Tensor& tensor) {
  return with_owner(tensor, in_order_of(stream, tensor.storage().owner()));
}

void set_order(const std::optional<Stream>& wanted, TensorDict& batch,
               const std::shared_ptr<Consumers>& consumers) {
  const auto in_order = [&](const Storage& memory) {
    const Stream order = wanted.value_or(stream_of(cuda::kPerThreadStream));
    return in_order_of(order, memory.owner(), consumers);
  };
  if (const PackedView* const packed = packed_view(batch)) {
    const Storage& memory = packed->storage;
    if (memory.device() == cpu() || find_order(memory) != nullptr) return;
    batch = unwrap(make_packed(packed->schema, packed->layout, with_owner(memory, in_order(memory)),
                               packed->values));
    return;
  }
  const auto schema = batch.schema();
  std::shared_ptr<const void> ordered;
  for (std::size_t i = 0; i < schema->leaves().size(); ++i) {
    if (leaf_view(batch, i).device == cpu()) continue;
    const Tensor leaf = batch.leaf(i);
    if (find_order(leaf.storage()) != nullptr) continue;
    // All leaves lie in one piece of memory.
    if (ordered == nullptr) ordered = in_order(leaf.storage());
    const SchemaLeaf& entry = schema->leaves()[i];
    unwrap(batch.try_set(entry.path, with_owner(leaf, ordered), entry.batching));
  }
}

std::optional<Stream> order_of(const Tensor& tensor) {
  const Order* const order = find_order(tensor.storage());
  return order == nullptr ? std::nullopt : std::optional(order->stream);
}

std::shared_ptr<Consumers> consumers_of(const Tensor& tensor) {
  const Order* const order = find_order(tensor.storage());
  return order == nullptr ? nullptr : order->consumers;
}

Result<Device> gpu_of_address(const void* address) {
  TENDON_TRY(driver, cuda::process_driver());
  TENDON_CHECK(driver->initialise());
  auto type = static_cast<cuda::MemoryType>(0);
  unsigned is_managed = 0;
  int ordinal = -1;
  cuda::PointerAttribute asked[] = {cuda::PointerAttribute::memory_type,
                                    cuda::PointerAttribute::is_managed,
                                    cuda::PointerAttribute::device_ordinal};
  void* answers[] = {&type, &is_managed, &ordinal};
  TENDON_CHECK(
      cuda::driver_result(driver->table(), "python.array", "cuPointerGetAttributes",
                          driver->table().pointer_get_attributes(
                              3, asked, answers, reinterpret_cast<cuda::DeviceAddress>(address))));
  if (type == cuda::MemoryType::device && is_managed == 0) return Device{DeviceKind::cuda, ordinal};
  return Error{ErrorCode::unsupported_device, "python.array",
               std::string("its memory is ") +
                   (is_managed != 0                  ? "managed memory of CUDA"
                    : type == cuda::MemoryType::host ? "pinned memory of the host"
                                                     : "none that a GPU here knows") +
                   "; legal is memory of a GPU"};
}

Result<std::shared_ptr<cuda::Gpu>> used_gpu(Device device) {
  TENDON_TRY(gpus, cuda::process_gpus());
  return gpus->use(device.index, kFirstUse);
}

Result<void> let_wait(Device device, Stream before, Stream after) {
  if (is_same(before, after)) return {};
  TENDON_TRY(gpu, used_gpu(device));
  cuda::PrimaryContext& context = *gpu->context();
  const cuda::PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  TENDON_CHECK(cuda::check_capture(context, before.here(), kWhere));
  TENDON_CHECK(cuda::check_capture(context, after.here(), kWhere));
  TENDON_TRY(event, gpu->take_event());
  cuda::Status status = context.table().event_record(event, before.here());
  if (status == cuda::Status::success)
    status = context.table().stream_wait_event(after.here(), event, 0);
  gpu->put_event(event);  // the wait refers to the event as recorded at the call
  return context.check(status, kWhere, "cuStreamWaitEvent on " + to_string(device));
}

std::optional<Stream> stream_for(const TensorDict& batch, const std::optional<Stream>& wanted) {
  std::optional<Stream> chosen = wanted;
  if (!seen.load(std::memory_order_relaxed)) return chosen;
  std::vector<std::pair<Device, Stream>> awaited;
  const auto await = [&](Device device, Stream stream) {
    const auto is_it = [&](const auto& known) {
      return known.first == device && is_same(known.second, stream);
    };
    if (!is_same(stream, *chosen) && std::ranges::none_of(awaited, is_it))
      awaited.emplace_back(device, stream);
  };
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    if (leaf_view(batch, i).device == cpu()) continue;
    const Tensor leaf = batch.leaf(i);
    const Order* const order = find_order(leaf.storage());
    if (order == nullptr) continue;
    if (!chosen) chosen = order->stream;
    await(leaf.device(), order->stream);
    if (order->consumers == nullptr) continue;
    for (const Stream& stream : order->consumers->streams()) await(leaf.device(), stream);
  }
  if (!awaited.empty()) {
    unwrap(without_gil([&]() -> Result<void> {
      for (const auto& [device, stream] : awaited) TENDON_CHECK(let_wait(device, stream, *chosen));
      return {};
    }));
  }
  return chosen;
}

std::optional<TensorDict> with_bare_loans(const TensorDict& batch) {
  if (!seen.load(std::memory_order_relaxed)) return std::nullopt;
  if (const PackedView* const packed = packed_view(batch)) {
    const Order* const order = find_order_of_frozen(packed->storage);
    if (order == nullptr) return std::nullopt;
    auto bare = make_packed(packed->schema, packed->layout,
                            with_owner(packed->storage, order->owner), packed->values);
    return bare ? std::optional(*std::move(bare)) : std::nullopt;
  }
  std::optional<TensorDict> bare;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    if (leaf_view(batch, i).device == cpu()) continue;
    const Tensor leaf = batch.leaf(i);
    const Order* const order = find_order_of_frozen(leaf.storage());
    if (order == nullptr) continue;
    if (!bare) bare = batch;
    auto without = try_with_owner(leaf, order->owner);
    const SchemaLeaf entry = batch.schema()->leaves()[i];
    if (!without || !bare->try_set(entry.path, *std::move(without), entry.batching))
      return std::nullopt;
  }
  return bare;
}

void refuse_stream(nb::handle data, const std::optional<Stream>& stream) {
  if (!stream) return;
  raise_value_error("stream is given, and a " + quoted_type(data) +
                    " has no tensors on a GPU; legal is a batch with it");
}

GapsAreCopied::GapsAreCopied() : before_(std::exchange(gaps_are_copied, true)) {}
GapsAreCopied::~GapsAreCopied() { gaps_are_copied = before_; }
bool GapsAreCopied::here() noexcept { return gaps_are_copied; }

void refuse_gpu(const Tensor& tensor, const std::string& what) {
  throw to_exception({ErrorCode::unsupported_device, "python.tensor",
                      "the elements lie on " + to_string(tensor.device()) + ", where " + what +
                          " cannot read them: receive with device='cpu', or give the tensor to a "
                          "library that uses "
                          "the GPU, as torch.from_dlpack(tensor) does"});
}

}  // namespace tendon::python
