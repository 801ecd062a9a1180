// SPDX-License-Identifier: Apache-2.0
#include "cuda/survey.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "cuda/driver_errors.hpp"
#include "cuda/uuid.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kWhere = "cuda.survey";

/// Each way of a tensor between processes needs all of these.
constexpr std::pair<DeviceAttribute, std::string_view> kNeeds[] = {
    {DeviceAttribute::unified_addressing, "one address space with the host"},
    {DeviceAttribute::virtual_memory_management, "management of virtual memory"},
    {DeviceAttribute::posix_descriptors, "memory that is passed as a descriptor"},
    {DeviceAttribute::stream_operations_of_64_bits, "words of 64 bits that streams write"},
    {DeviceAttribute::host_register, "registration of host memory"},
};

}  // namespace

Result<GpuSurvey> survey(Driver& driver) {
  TENDON_CHECK(driver.initialise());
  const DriverTable& table = driver.table();
  const auto check = [&](Status status, std::string_view call) {
    return driver_result(table, kWhere, call, status);
  };
  GpuSurvey found;
  int version = 0;
  TENDON_CHECK(check(table.driver_get_version(&version), "cuDriverGetVersion"));
  found.driver = version_text(version);
  int count = 0;
  const Status counted = table.device_get_count(&count);
  if (counted == Status::no_device) return found;
  TENDON_CHECK(check(counted, "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    GpuFacts gpu;
    gpu.device = {DeviceKind::cuda, ordinal};
    DeviceOrdinal number = 0;
    TENDON_CHECK(check(table.device_get(&number, ordinal), "cuDeviceGet"));
    std::array<char, 256> name{};
    TENDON_CHECK(
        check(table.device_get_name(name.data(), static_cast<int>(name.size()) - 1, number),
              "cuDeviceGetName"));
    gpu.name = name.data();
    Uuid uuid{};
    TENDON_CHECK(check(table.device_get_uuid(&uuid, number), "cuDeviceGetUuid_v2"));
    gpu.uuid = uuid_text(uuid);
    // A driver that does not know an attribute lacks the feature.
    Status failed = Status::success;
    const auto attribute = [&](DeviceAttribute wanted) {
      int value = 0;
      const Status status = table.device_get_attribute(&value, wanted, number);
      if (status == Status::success) return value;
      if (status != Status::invalid_value && status != Status::not_supported) failed = status;
      return 0;
    };
    gpu.compute_capability = std::to_string(attribute(DeviceAttribute::compute_capability_major)) +
                             "." +
                             std::to_string(attribute(DeviceAttribute::compute_capability_minor));
    for (const auto& [needed, in_words] : kNeeds)
      if (attribute(needed) == 0) gpu.lacks.push_back(in_words);
    TENDON_CHECK(check(failed, "cuDeviceGetAttribute"));
    found.gpus.push_back(std::move(gpu));
  }
  return found;
}

}  // namespace tendon::v0::detail::cuda
