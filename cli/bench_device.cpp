// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_device.hpp"

#include <algorithm>
#include <string_view>

#include "channel/staging.hpp"
#include "cli/benchmark.hpp"
#include "cuda/stream_work.hpp"
#include "cuda/survey.hpp"

namespace tendon::cli {
namespace {

namespace cuda = detail::cuda;

constexpr std::string_view kDevice = "cli.bench.device";
constexpr std::uint64_t kSmallestPool = std::uint64_t{64} << 20;

cuda::StreamHandle stream() { return static_cast<cuda::StreamHandle>(kStreamPerThread); }

}  // namespace

BenchDevice::BenchDevice(std::shared_ptr<cuda::Gpu> gpu, std::uint64_t size_bytes)
    : gpu_(std::move(gpu)),
      // A slot has up to an eighth more than what lies in it.
      pool_(std::make_shared<cuda::DevicePool>(gpu_->context(), gpu_->thread(),
                                               kSmallestPool + 3 * size_bytes)) {}

Result<BenchDevice> BenchDevice::use(Device device, std::uint64_t size_bytes) {
  TENDON_TRY(gpu, detail::wanted_gpu(device, kDevice, row_deadline()));
  if (gpu == nullptr) {
    return Error{ErrorCode::unsupported_device, kDevice,
                 "the device is " + to_string(device) + "; legal are GPUs: cuda:0"};
  }
  return BenchDevice(std::move(gpu), size_bytes);
}

Result<TensorDict> BenchDevice::put(const TensorDict& host) const {
  TENDON_TRY(there, detail::copy_to_gpu(host, {.gpu = gpu_, .pool = pool_, .stream = stream()},
                                        kDevice, row_deadline()));
  TENDON_CHECK(wait());
  return there;
}

Result<Storage> BenchDevice::bring_back(const Tensor& tensor) const {
  TENDON_TRY(host, Storage::allocate(tensor.size_bytes()));
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream(), kDevice));
  const auto address = [](const std::byte* data) {
    return reinterpret_cast<cuda::DeviceAddress>(data);
  };
  TENDON_CHECK(work.copy(address(host.data()), address(tensor.data()), tensor.size_bytes()));
  TENDON_CHECK(work.wait(row_deadline()));
  return host;
}

Result<void> BenchDevice::wait() const {
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream(), kDevice));
  return work.wait(row_deadline());
}

Result<BenchDeviceFacts> facts_of(Device device) {
  TENDON_CHECK(BenchDevice::use(device, 0));
  TENDON_TRY(driver, cuda::process_driver());
  TENDON_TRY(found, cuda::survey(*driver));
  const auto gpu = std::ranges::find(found.gpus, device, &cuda::GpuFacts::device);
  return BenchDeviceFacts{gpu == found.gpus.end() ? std::string() : gpu->name, found.driver};
}

}  // namespace tendon::cli
