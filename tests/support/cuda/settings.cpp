// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/settings.hpp"

#include <algorithm>
#include <cstdlib>

namespace tendon::cuda_double {
namespace {

std::string text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string() : text;
}

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const std::string text = text_of(name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

v0::detail::cuda::Uuid uuid_of(const std::string& digits) {
  v0::detail::cuda::Uuid uuid{};
  for (std::size_t at = 0; at < uuid.bytes.size() && 2 * at + 2 <= digits.size(); ++at)
    uuid.bytes[at] =
        static_cast<unsigned char>(std::strtoul(digits.substr(2 * at, 2).c_str(), nullptr, 16));
  return uuid;
}

}  // namespace

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

bool is_hidden(std::string_view exported_name) {
  const auto hidden = parts_of(text_of("TENDON_CUDA_DOUBLE_MISSING"));
  return std::find(hidden.begin(), hidden.end(), exported_name) != hidden.end();
}

Settings Settings::of_environment() {
  Settings settings;
  const std::uint64_t device_count = number_of("TENDON_CUDA_DOUBLE_DEVICES", 1);
  const auto uuids = parts_of(text_of("TENDON_CUDA_DOUBLE_UUIDS"));
  for (std::uint64_t device = 0; device < device_count; ++device) {
    v0::detail::cuda::Uuid uuid{};
    uuid.bytes.back() = static_cast<unsigned char>(device);
    settings.devices.push_back(device < uuids.size() ? uuid_of(uuids[device]) : uuid);
  }
  settings.version = static_cast<int>(number_of("TENDON_CUDA_DOUBLE_VERSION", 13000));
  settings.memory_bytes = number_of("TENDON_CUDA_DOUBLE_MEMORY", settings.memory_bytes);
  settings.seed = number_of("TENDON_CUDA_DOUBLE_SEED", 0);
  settings.delay_us = number_of("TENDON_CUDA_DOUBLE_DELAY_US", settings.delay_us);
  settings.in_order = number_of("TENDON_CUDA_DOUBLE_IN_ORDER", 0) != 0;
  settings.strict = number_of("TENDON_CUDA_DOUBLE_STRICT", 0) != 0;
  settings.pins = number_of("TENDON_CUDA_DOUBLE_PINS", 0) != 0;
  for (const std::string& part : parts_of(text_of("TENDON_CUDA_DOUBLE_FAIL"))) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::size_t at = std::min(part.find('@'), part.size());
    Failure failure;
    if (equals < part.size())
      failure.status = static_cast<int>(std::strtol(part.c_str() + equals + 1, nullptr, 10));
    if (at < part.size()) failure.passage = std::strtoull(part.c_str() + at + 1, nullptr, 10);
    settings.failures[part.substr(0, equals)] = failure;
  }
  return settings;
}

}  // namespace tendon::cuda_double
