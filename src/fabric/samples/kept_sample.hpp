// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/kept_body.hpp"
#include "fabric/samples/sample_header.hpp"

namespace tendon::v0::detail {

/// A sample as it is kept for those that are to see it.
struct KeptSample : KeptBody {
  SampleHeader header;  ///< as it stands at the end of the body
};

}  // namespace tendon::v0::detail
