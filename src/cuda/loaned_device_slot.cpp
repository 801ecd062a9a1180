// SPDX-License-Identifier: Apache-2.0
#include "cuda/loaned_device_slot.hpp"

#include <utility>

#include "cuda/behind_stream.hpp"

namespace tendon::v0::detail::cuda {
namespace {

/// The deleter by which a shared pointer of another type reveals a loan.
struct Return {
  void operator()(LoanedDeviceSlot* it) const { delete it; }
  const LoanedDeviceSlot* loan = nullptr;
};

}  // namespace

LoanedDeviceSlot::LoanedDeviceSlot(std::shared_ptr<Gpu> gpu, std::shared_ptr<DeviceSlot> slot,
                                   StreamName stream)
    : gpu_(std::move(gpu)), slot_(std::move(slot)), stream_(stream) {}

LoanedDeviceSlot::~LoanedDeviceSlot() {
  if (is_ordered_) return;
  Owners owners;
  owners.push_back(std::move(slot_));
  drop_behind(std::move(gpu_), stream_, std::move(owners));
}

std::shared_ptr<LoanedDeviceSlot> LoanedDeviceSlot::make(std::shared_ptr<Gpu> gpu,
                                                         std::shared_ptr<DeviceSlot> slot,
                                                         StreamName stream) {
  auto* const loan = new LoanedDeviceSlot(std::move(gpu), std::move(slot), stream);
  return std::shared_ptr<LoanedDeviceSlot>(loan, Return{loan});
}

const LoanedDeviceSlot* LoanedDeviceSlot::find(const Storage& storage) {
  const auto* const found = std::get_deleter<Return>(storage.owner());
  return found == nullptr ? nullptr : found->loan;
}

Storage LoanedDeviceSlot::storage(const std::shared_ptr<LoanedDeviceSlot>& owner,
                                  std::uint64_t size_bytes) {
  auto* const data = reinterpret_cast<std::byte*>(owner->slot_->address());
  return {
      owner, data, size_bytes, Access::read_write, Origin::here, owner->gpu_->context()->device()};
}

}  // namespace tendon::v0::detail::cuda
