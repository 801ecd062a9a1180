// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <tendon/memory/device.hpp>

namespace tendon::v0 {
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
  const auto kind = parse_word<DeviceKind>(text);
  if (!kind) return std::nullopt;
  device.kind = *kind;
  return device;
}

std::optional<DeviceKind> device_kind_from_dlpack(std::int32_t number) {
  return enumerator_from<DeviceKind>(static_cast<std::uint32_t>(number));
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace tendon::v0
