// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_device.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "channel/staging.hpp"
#include "cli/benchmark.hpp"
#include "cuda/address.hpp"
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
      // A slot has up to an eighth more bytes than its batch.
      pool_(std::make_shared<cuda::DevicePool>(gpu_->context(), gpu_->thread(),
                                               kSmallestPool + 4 * size_bytes)) {}

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

Result<void> BenchDevice::write(const Tensor& there, const Tensor& host) const {
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream(), kDevice));
  TENDON_CHECK(
      work.copy(cuda::address_of(there.data()), cuda::address_of(host.data()), host.size_bytes()));
  return work.wait(row_deadline());
}

Result<Storage> BenchDevice::bring_back(const Tensor& tensor) const {
  TENDON_TRY(host, Storage::allocate(tensor.size_bytes()));
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream(), kDevice));
  TENDON_CHECK(work.copy(cuda::address_of(host.data()), cuda::address_of(tensor.data()),
                         tensor.size_bytes()));
  TENDON_CHECK(work.wait(row_deadline()));
  return host;
}

Result<void> BenchDevice::wait() const {
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream(), kDevice));
  return work.wait(row_deadline());
}

Result<std::optional<BenchDeviceFacts>> facts_of(const std::string& device,
                                                 std::string_view where) {
  if (device.empty()) return std::optional<BenchDeviceFacts>();
  const auto named = parse_device(device);
  if (!named || *named == cpu()) {
    return Error{ErrorCode::invalid_argument, where,
                 fmt::format("--device {}; legal are GPUs: cuda:0", device)};
  }
  TENDON_CHECK(BenchDevice::use(*named, 0));
  TENDON_TRY(driver, cuda::process_driver());
  TENDON_TRY(found, cuda::survey(*driver));
  const auto gpu = std::ranges::find(found.gpus, *named, &cuda::GpuFacts::device);
  return std::optional<BenchDeviceFacts>(
      {*named, gpu == found.gpus.end() ? std::string() : gpu->name, found.driver});
}

void add_gpu(Value::Map& row, const BenchDeviceFacts& facts) {
  row.emplace_back("device", to_string(facts.device));
  row.emplace_back("gpu", facts.name);
  row.emplace_back("driver", facts.driver);
}

}  // namespace tendon::cli
