// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// The kind of device in which memory lies. The numbers are those of DLDeviceType in DLPack's
/// header.
enum class DeviceKind : std::uint8_t {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,
  opencl = 4,
  vulkan = 7,
  metal = 8,
  vpi = 9,
  rocm = 10,
  rocm_host = 11,
  extension = 12,
  cuda_managed = 13,
  oneapi = 14,
  webgpu = 15,
  hexagon = 16,
  maia = 17,
  trainium = 18,
};
TENDON_WORDS(DeviceKind, cpu, cuda, cuda_host, opencl, vulkan, metal, vpi, rocm, rocm_host,
             extension, cuda_managed, oneapi, webgpu, hexagon, maia, trainium);

/// One device of one kind.
///
/// Owns:    nothing.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    none.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::int32_t index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] constexpr Device cpu() { return {}; }
/// "cpu" for the one CPU, "cuda:0" for the rest.
[[nodiscard]] TENDON_API std::string to_string(Device device);
/// Reads the text that to_string() writes; a missing index is 0.
[[nodiscard]] TENDON_API std::optional<Device> parse_device(std::string_view text);
/// The kind with DLPack's number, nullopt for a number that names none.
[[nodiscard]] TENDON_API std::optional<DeviceKind> device_kind_from_dlpack(std::int32_t number);
TENDON_API std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace v0
}  // namespace tendon
