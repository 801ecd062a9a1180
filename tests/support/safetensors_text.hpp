// SPDX-License-Identifier: Apache-2.0
// Safetensors files as another program writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/memory/storage.hpp>

#include "support/storage_of.hpp"

namespace tendon::test {

/// Joins the length of `header`, the header and `data`.
inline Storage safetensors_text(std::string_view header, std::string_view data) {
  const std::uint64_t size = header.size();
  std::string text(sizeof size, '\0');
  std::memcpy(text.data(), &size, sizeof size);
  return storage_of(text.append(header).append(data));
}

}  // namespace tendon::test
