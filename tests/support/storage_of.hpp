// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/memory/storage.hpp>

namespace tendon::test {

inline Storage storage_of(std::string_view text) {
  const auto owner = std::make_shared<std::string>(text);
  return {owner, reinterpret_cast<std::byte*>(owner->data()), owner->size(), Access::read_only};
}

}  // namespace tendon::test
