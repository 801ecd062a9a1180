// SPDX-License-Identifier: Apache-2.0
#include "cuda/delivered_slot.hpp"

#include <utility>

#include "cuda/behind_stream.hpp"

namespace tendon::v0::detail::cuda {
namespace {

class DeliveredSlot {
 public:
  DeliveredSlot(std::shared_ptr<Gpu> gpu, std::shared_ptr<DeviceSlot> slot, StreamName stream)
      : gpu_(std::move(gpu)), slot_(std::move(slot)), stream_(stream) {}
  DeliveredSlot(const DeliveredSlot&) = delete;
  DeliveredSlot& operator=(const DeliveredSlot&) = delete;
  ~DeliveredSlot() {
    Owners owners;
    owners.push_back(std::move(slot_));
    drop_behind(std::move(gpu_), stream_, std::move(owners));
  }

 private:
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<DeviceSlot> slot_;
  const StreamName stream_;
};

}  // namespace

std::shared_ptr<const void> deliver(std::shared_ptr<Gpu> gpu, std::shared_ptr<DeviceSlot> slot,
                                    StreamName stream) {
  return std::make_shared<DeliveredSlot>(std::move(gpu), std::move(slot), stream);
}

}  // namespace tendon::v0::detail::cuda
