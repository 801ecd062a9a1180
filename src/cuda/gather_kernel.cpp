// SPDX-License-Identifier: Apache-2.0
#include "cuda/gather_kernel.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <tendon/observe/log.hpp>
#include <utility>

#include "cuda/gather_ptx.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kWhere = "cuda.gather";

bool may_be_better_later(const Result<FunctionHandle>& loaded) {
  return !loaded && loaded.error().code == ErrorCode::resource_exhausted;
}

}  // namespace

// Every driver accepts so many bytes of parameters.
static_assert(sizeof(GatherTable) <= 4096);

GatherKernel::GatherKernel(std::shared_ptr<PrimaryContext> context, DeviceThread& thread)
    : context_(std::move(context)), thread_(thread) {}

Result<FunctionHandle> GatherKernel::function(Deadline deadline) {
  TENDON_CHECK(context_->check_usable(kWhere));
  const Lock lock(mutex_);
  if (loaded_ && !may_be_better_later(*loaded_)) return *loaded_;
  if (!is_loading_) {
    TENDON_CHECK(thread_.post([self = shared_from_this()] { self->loaded(self->load()); }));
    is_loading_ = true;
  }
  while (is_loading_) {
    if (changed_.wait_until(mutex_, deadline) || !is_loading_) continue;
    return Error{ErrorCode::timeout, kWhere,
                 "the driver had not made the kernel for " + to_string(context_->device()) +
                     " before the deadline"};
  }
  return *loaded_;
}

Result<FunctionHandle> GatherKernel::load() const {
  const PrimaryContext::Current current(*context_);
  TENDON_CHECK(current.made());
  const DriverTable& table = context_->table();
  const auto check = [&](Status status, std::string_view call) {
    return context_->check(status, kWhere,
                           std::string(call) + " on " + to_string(context_->device()));
  };
  ModuleHandle module_handle = nullptr;
  TENDON_CHECK(check(table.module_load(&module_handle, kGatherPtx), "cuModuleLoadData"));
  FunctionHandle function = nullptr;
  TENDON_CHECK(check(table.module_get_function(&function, module_handle, kGatherKernel),
                     "cuModuleGetFunction"));
  return function;
}

void GatherKernel::loaded(Loaded result) {
  if (!result && !may_be_better_later(result) && context_->check_usable(kWhere))
    log(LogLevel::warn, kWhere,
        "small tensors on " + to_string(context_->device()) +
            " are copied one by one, which takes longer: " + result.error().detail);
  const Lock lock(mutex_);
  loaded_ = std::move(result);
  is_loading_ = false;
  changed_.notify_all();
}

Status launch_gather(const DriverTable& table, FunctionHandle kernel, StreamHandle stream,
                     std::span<const GatherEntry> entries) {
  GatherTable parameter{};
  std::ranges::copy(entries, std::begin(parameter.entries));
  unsigned long long largest = 0;
  for (const GatherEntry& entry : entries) largest = std::max(largest, entry.size_bytes);
  const auto chunks = static_cast<unsigned>((largest + kGatherChunkBytes - 1) / kGatherChunkBytes);
  if (chunks == 0) return Status::success;
  void* parameters[] = {&parameter};
  return table.launch_kernel(kernel, chunks, static_cast<unsigned>(entries.size()), 1,
                             kGatherThreads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace tendon::v0::detail::cuda
