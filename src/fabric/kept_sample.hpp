// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "channel/sample_channel.hpp"
#include "fabric/sample_header.hpp"

namespace tendon::v0::detail {

/// A sample as it is kept for those that are to see it. It does not change.
///
/// Owns:    its body: a slot of the publish pool or, when the body is small, memory of its own.
struct KeptSample {
  SampleHeader header;
  SharedMessage message;           ///< its body is all that follows, or lies in its slot
  std::vector<std::byte> inlined;  ///< the body, without a slot
};

}  // namespace tendon::v0::detail
