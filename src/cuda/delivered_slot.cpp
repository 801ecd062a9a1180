// SPDX-License-Identifier: Apache-2.0
#include "cuda/delivered_slot.hpp"

#include <utility>

#include "cuda/behind_stream.hpp"

namespace tendon::v0::detail::cuda {
namespace {

class Delivered {
 public:
  Delivered(std::shared_ptr<Gpu> gpu, std::shared_ptr<const void> memory, StreamName stream)
      : gpu_(std::move(gpu)), memory_(std::move(memory)), stream_(stream) {}
  Delivered(const Delivered&) = delete;
  Delivered& operator=(const Delivered&) = delete;
  ~Delivered() {
    Owners owners;
    owners.push_back(std::move(memory_));
    drop_behind(std::move(gpu_), stream_, std::move(owners));
  }

 private:
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<const void> memory_;
  const StreamName stream_;
};

}  // namespace

std::shared_ptr<const void> deliver(std::shared_ptr<Gpu> gpu, std::shared_ptr<const void> memory,
                                    StreamName stream) {
  return std::make_shared<Delivered>(std::move(gpu), std::move(memory), stream);
}

}  // namespace tendon::v0::detail::cuda
