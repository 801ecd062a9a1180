// SPDX-License-Identifier: Apache-2.0
#include "fabric/ports/head_pages.hpp"

#include "memory/claim.hpp"

namespace tendon::v0::detail {

Result<HeadWord> HeadPages::take() {
  const Lock lock(mutex_);
  if (used_ == HeadPage::kWords) {
    TENDON_TRY(segment, Segment::create(HeadPage::kBytes, Writers::maker_only));
    TENDON_CHECK(claim(*segment, 0, HeadPage::kBytes));
    page_ = {segment, publishing_.new_name()};
    used_ = 0;
  }
  return HeadWord(page_, ++used_);
}

}  // namespace tendon::v0::detail
