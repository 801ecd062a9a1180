// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/error.hpp>
#include <tendon/fabric/ended.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placement.hpp"
#include "fabric/samples/direct_sample.hpp"
#include "fabric/samples/gap_finder.hpp"
#include "fabric/samples/sample_header.hpp"

namespace tendon::v0::detail {

/// A sample as it arrived, without the names that its subscriber knows.
struct TakenSample {
  SampleHeader header;
  std::uint32_t tag = 0;
  std::optional<GapFinder::Missing> missing;  ///< before it
  std::uint64_t thinned = 0;                  ///< left out by the rate, before it
  std::optional<TensorDict> tensors;
  std::shared_ptr<const Placement> placement;  ///< of its tensors; null: in host memory
  std::shared_ptr<DirectSample> direct{};      ///< null: its tensors do not lie there any more
  Storage bytes;
  bool copied = false;  ///< because `max_held` are kept
  bool more = false;    ///< the next one is here, and the queue was not told
  /// The reason if it is unreadable: it has no content then. Its header is zero if that is the
  /// reason.
  std::unique_ptr<Error> unreadable;
};
/// The end of the publisher's samples, as far as this link tells.
struct StreamEnding {
  EndReason reason = EndReason::closed;
  std::uint64_t last_published = 0;  ///< exact, or at least
  bool exact = false;
};

}  // namespace tendon::v0::detail
