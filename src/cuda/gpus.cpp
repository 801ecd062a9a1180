// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpus.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/process_wide.hpp"
#include "cuda/driver_errors.hpp"
#include "cuda/library.hpp"
#include "cuda/library_choice.hpp"
#include "cuda/uuid.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kFind = "cuda.find";

Error unused_error(const Uuid& uuid) {
  return Error{ErrorCode::unsupported_device, kFind,
               "the tensor lies on the GPU " + uuid_text(uuid) +
                   ", and this process has not used CUDA, which a peer does not make it do: "
                   "receive with device=\"cpu\", or use CUDA before, by any tensor or device "
                   "argument on a GPU"};
}

Error absent_error(const Uuid& uuid, std::size_t gpu_count) {
  return Error{ErrorCode::unsupported_device, kFind,
               "the tensor lies on the GPU " + uuid_text(uuid) + ", which is none of the " +
                   std::to_string(gpu_count) +
                   " that this process sees: CUDA_VISIBLE_DEVICES may hide it; show it, or receive "
                   "with device=\"cpu\""};
}

}  // namespace

Gpus::Gpus(Driver& driver, DeviceThread& thread)
    : driver_(driver), thread_(thread), table_(std::make_shared<Table>()) {}

Gpus::~Gpus() = default;

std::shared_ptr<Gpu> Gpus::Table::find(int ordinal) {
  const Lock lock(mutex);
  const auto at = used.find(ordinal);
  return at == used.end() ? nullptr : at->second;
}

Result<std::shared_ptr<Gpu>> Gpus::use(int ordinal, Deadline deadline) {
  TENDON_CHECK(driver_.check_process());
  auto gpu = table_->find(ordinal);
  if (gpu == nullptr) {
    // Only the device thread adds GPUs, so the second of two callers finds that of the first.
    TENDON_TRY(made, thread_.run(
                         [table = table_, &driver = driver_, &thread = thread_,
                          ordinal]() -> Result<std::shared_ptr<Gpu>> {
                           if (auto known = table->find(ordinal)) return known;
                           TENDON_TRY(context, PrimaryContext::retain(driver, thread, ordinal));
                           auto added = std::make_shared<Gpu>(std::move(context), thread);
                           const Lock lock(table->mutex);
                           table->used.emplace(ordinal, added);
                           return added;
                         },
                         deadline));
    gpu = std::move(made);
  }
  TENDON_CHECK(gpu->context()->check_usable("cuda.use"));
  return gpu;
}

Result<std::shared_ptr<Gpu>> Gpus::find(const Uuid& uuid, Deadline deadline) {
  TENDON_CHECK(driver_.check_process());
  if (!driver_.is_in_use()) return unused_error(uuid);
  TENDON_TRY(all, uuids());
  const auto at = std::find(all.begin(), all.end(), uuid);
  if (at == all.end()) return absent_error(uuid, all.size());
  return use(static_cast<int>(at - all.begin()), deadline);
}

std::shared_ptr<Gpu> Gpus::find_used(const Uuid& uuid) {
  if (!driver_.check_process()) return nullptr;
  const Lock lock(table_->mutex);
  for (const auto& [ordinal, gpu] : table_->used)
    if (gpu->context()->uuid() == uuid) return gpu;
  return nullptr;
}

Result<std::vector<Uuid>> Gpus::uuids() {
  {
    const Lock lock(table_->mutex);
    if (!table_->uuids.empty()) return table_->uuids;
  }
  TENDON_TRY(all, read_uuids());
  const Lock lock(table_->mutex);
  table_->uuids = all;
  return all;
}

Result<std::vector<Uuid>> Gpus::read_uuids() const {
  const DriverTable& table = driver_.table();
  const auto check = [&](Status status, std::string_view call) {
    return driver_result(table, kFind, call, status);
  };
  int count = 0;
  TENDON_CHECK(check(table.device_get_count(&count), "cuDeviceGetCount"));
  std::vector<Uuid> all(static_cast<std::size_t>(std::max(count, 0)));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceOrdinal number = 0;
    TENDON_CHECK(check(table.device_get(&number, ordinal), "cuDeviceGet"));
    TENDON_CHECK(check(table.device_get_uuid(&all[static_cast<std::size_t>(ordinal)], number),
                       "cuDeviceGetUuid_v2"));
  }
  return all;
}

Result<Gpus*> process_gpus() {
  // A child of a process that has not used CUDA yet keeps this object: no thread has used it.
  static constinit MadeOnce<Gpus> made;
  TENDON_TRY(driver, process_driver());
  TENDON_TRY(thread, process_device_thread());
  return &made.get(
      [driver = driver, thread = thread] { return std::make_unique<Gpus>(*driver, *thread); });
}

std::shared_ptr<Gpu> find_used_gpu(const Uuid& uuid) {
  const auto library = chosen_library();
  if (!library || !Library::is_open(*library)) return nullptr;
  const auto gpus = process_gpus();
  return gpus ? (*gpus)->find_used(uuid) : nullptr;
}

Result<void> check_in_use(const Uuid& wanted) {
  const auto library = chosen_library();
  if (!library || !Library::is_open(*library)) return unused_error(wanted);
  TENDON_TRY(driver, process_driver());
  TENDON_CHECK(driver->check_process());
  return driver->is_in_use() ? Result<void>() : unused_error(wanted);
}

Result<std::shared_ptr<Gpu>> find_process_gpu(const Uuid& uuid, Deadline deadline) {
  TENDON_CHECK(check_in_use(uuid));
  TENDON_TRY(gpus, process_gpus());
  return gpus->find(uuid, deadline);
}

}  // namespace tendon::v0::detail::cuda
