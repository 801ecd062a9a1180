// SPDX-License-Identifier: Apache-2.0
#include "pipe/sought_gpu.hpp"

#include "cuda/gpus.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<const SoughtGpu>> SoughtGpu::begin(int ordinal,
                                                          std::function<void()> on_over) {
  TENDON_TRY(driver, cuda::process_driver());
  TENDON_TRY(gpus, cuda::process_gpus());
  TENDON_TRY(thread, cuda::process_device_thread());
  std::shared_ptr<SoughtGpu> sought(new SoughtGpu);
  const auto use = [driver = driver, gpus = gpus, ordinal]() -> Result<std::shared_ptr<cuda::Gpu>> {
    TENDON_CHECK(driver->initialise());
    return gpus->use(ordinal, Deadline::never());
  };
  auto posted = thread->post([sought, use, on_over = std::move(on_over)] {
    auto used = use();
    if (used) sought->gpu_ = *used;
    sought->answer_.finish(used ? Result<void>() : Result<void>(std::move(used).error()));
    on_over();
  });
  if (!posted) return std::move(posted).error();
  return std::shared_ptr<const SoughtGpu>(std::move(sought));
}

}  // namespace tendon::v0::detail
