// SPDX-License-Identifier: Apache-2.0
#include "pipe/gpu_loan.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "cuda/address.hpp"
#include "cuda/stream_work.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "pipe.loan";
// Slots that other peers return, and that the GPU is done with, ring no bell.
constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

Result<std::shared_ptr<cuda::LoanedDeviceSlot>> take_gpu_loan(const GpuLoan& wanted,
                                                              std::uint64_t size_bytes,
                                                              Deadline deadline) {
  TENDON_TRY(work, cuda::StreamWork::begin(wanted.gpu, wanted.stream, kWhere));
  const auto pool = wanted.context.memory().passed->of(wanted.gpu);
  std::optional<Result<std::shared_ptr<cuda::DeviceSlot>>> taken;
  const auto attempt = [&] {
    if (auto still = wanted.usable(); !still) {
      taken.emplace(std::move(still).error());
      return true;
    }
    taken.emplace(pool->acquire(std::max<std::uint64_t>(size_bytes, 1), deadline));
    if (*taken || taken->error().code != ErrorCode::resource_exhausted) return true;
    (void)wanted.context.links().collect_returns(LinkTable::Of::all);
    return false;
  };
  bool is_over = attempt();
  while (!is_over && !deadline.has_passed())
    is_over = wanted.context.wait(&wanted.link, earlier(deadline, kLookAgain), attempt);
  if (!*taken) return std::move(*taken).error();
  return cuda::LoanedDeviceSlot::make(wanted.gpu, **std::move(taken), wanted.stream);
}

Result<TensorDict> sealed_loan(const TensorDict& batch, const cuda::LoanedDeviceSlot& loan,
                               const ContextCore& context) {
  if (&loan.slot()->pool() != context.memory().passed->of(loan.gpu()).get()) {
    return Error{ErrorCode::wrong_link, "pipe.send",
                 "the loan was taken from a pipe of another Context; one on a GPU goes on pipes of "
                 "its own Context alone"};
  }
  const PackedView& packed = *packed_view(batch);
  return make_packed(packed.schema, packed.layout, packed.storage.read_only(), packed.values);
}

std::shared_ptr<cuda::DeviceSlot> loaned_slot_of(const TensorDict& batch,
                                                 const PlacedLayout& layout,
                                                 const cuda::DevicePool& pool) {
  std::shared_ptr<cuda::DeviceSlot> slot;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device == cpu() || leaf.size_bytes == 0) continue;
    if (slot == nullptr) {
      const Tensor tensor = batch.leaf(i);
      if (tensor.storage().access() != Access::read_only) return nullptr;
      const auto* const loan = cuda::LoanedDeviceSlot::find(tensor.storage());
      if (loan == nullptr || &loan->slot()->pool() != &pool) return nullptr;
      slot = loan->slot();
    }
    if (cuda::address_of(leaf.data) != slot->address() + layout.offsets[i]) return nullptr;
  }
  return slot;
}

}  // namespace tendon::v0::detail
