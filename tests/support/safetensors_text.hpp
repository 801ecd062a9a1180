// SPDX-License-Identifier: Apache-2.0
// Safetensors as another program writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/memory/storage.hpp>

namespace tendon::test {

inline Storage storage_of(std::string_view text) {
  const auto owner = std::make_shared<std::string>(text);
  return {owner, reinterpret_cast<std::byte*>(owner->data()), owner->size(), Access::read_only};
}

/// The length of `header`, the header, `data`.
inline Storage safetensors_text(std::string_view header, std::string_view data) {
  const std::uint64_t size = header.size();
  std::string text(sizeof size, '\0');
  std::memcpy(text.data(), &size, sizeof size);
  return storage_of(text.append(header).append(data));
}

}  // namespace tendon::test
