// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <tendon/tensor/device.hpp>

namespace tendon::v0 {
namespace {

struct Row {
  DeviceKind kind;
  std::string_view name;
};

constexpr std::array kDevices = {
    Row{DeviceKind::cpu, "cpu"},
    Row{DeviceKind::cuda, "cuda"},
    Row{DeviceKind::cuda_host, "cuda_host"},
    Row{DeviceKind::opencl, "opencl"},
    Row{DeviceKind::vulkan, "vulkan"},
    Row{DeviceKind::metal, "metal"},
    Row{DeviceKind::vpi, "vpi"},
    Row{DeviceKind::rocm, "rocm"},
    Row{DeviceKind::rocm_host, "rocm_host"},
    Row{DeviceKind::extension, "extension"},
    Row{DeviceKind::cuda_managed, "cuda_managed"},
    Row{DeviceKind::oneapi, "oneapi"},
    Row{DeviceKind::webgpu, "webgpu"},
    Row{DeviceKind::hexagon, "hexagon"},
    Row{DeviceKind::maia, "maia"},
    Row{DeviceKind::trainium, "trainium"},
};

}  // namespace

std::string_view to_string(DeviceKind kind) {
  for (const Row& row : kDevices)
    if (row.kind == kind) return row.name;
  return "unknown";
}

std::string to_string(Device device) {
  std::string text(to_string(device.kind));
  if (device == cpu()) return text;
  return text + ":" + std::to_string(device.index);
}

std::optional<Device> parse_device(std::string_view text) {
  Device device;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const char* end = digits.data() + digits.size();
    const auto [stop, failure] = std::from_chars(digits.data(), end, device.index);
    if (failure != std::errc() || stop != end || device.index < 0) return std::nullopt;
    text = text.substr(0, colon);
  }
  for (const Row& row : kDevices) {
    if (row.name == text) {
      device.kind = row.kind;
      return device;
    }
  }
  return std::nullopt;
}

std::optional<DeviceKind> device_kind_from_dlpack(std::int32_t number) {
  for (const Row& row : kDevices)
    if (static_cast<std::int32_t>(row.kind) == number) return row.kind;
  return std::nullopt;
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace tendon::v0
