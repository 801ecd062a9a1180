// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/context_id.hpp>

namespace tendon::v0::detail {

/// A publisher as subscribers know it.
struct PublisherId {
  ContextId context;
  std::uint32_t entity = 0;

  friend bool operator==(const PublisherId&, const PublisherId&) = default;
  friend auto operator<=>(const PublisherId&, const PublisherId&) = default;
};

}  // namespace tendon::v0::detail
