// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/context_id.hpp>

namespace tendon::v0::detail {

/// The name of a node in samples and events. Two nodes are compared only by announced names.
struct PeerName {
  std::string text;
  bool announced = false;

  [[nodiscard]] static PeerName announced_as(std::string name) { return {std::move(name), true}; }
  /// Makes a name for a Context that no announcement names: "?0a1b2c3d".
  [[nodiscard]] static PeerName unknown(const ContextId& context) {
    return {"?" + context.to_string().substr(0, 8), false};
  }
  [[nodiscard]] bool is_twin_of(const PeerName& other) const {
    return announced && other.announced && text == other.text;
  }
};

}  // namespace tendon::v0::detail
