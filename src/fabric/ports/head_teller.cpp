// SPDX-License-Identifier: Apache-2.0
#include "fabric/ports/head_teller.hpp"

#include <utility>

namespace tendon::v0::detail {

void HeadTeller::note_behind(std::weak_ptr<HeadSource> publisher) {
  {
    const Lock lock(mutex_);
    behind_.push_back(std::move(publisher));
    if (std::exchange(armed_, true)) return;
  }
  (void)context_->add_timed(Deadline(kPeriod), weak_from_this());
}

void HeadTeller::on_time() {
  std::deque<std::weak_ptr<HeadSource>> turn;
  {
    const Lock lock(mutex_);
    turn.swap(behind_);
  }
  std::deque<std::weak_ptr<HeadSource>> still_behind;
  std::size_t said = 0;
  while (!turn.empty() && said < kMost) {
    if (const auto publisher = turn.front().lock()) {
      const std::size_t here = publisher->say_head();
      said += here;
      if (here != 0) still_behind.push_back(turn.front());
    }
    turn.pop_front();
  }
  {
    const Lock lock(mutex_);
    behind_.insert(behind_.end(), turn.begin(), turn.end());
    behind_.insert(behind_.end(), still_behind.begin(), still_behind.end());
    if (behind_.empty()) {
      armed_ = false;
      return;
    }
  }
  (void)context_->add_timed(Deadline(kPeriod), weak_from_this());
}

}  // namespace tendon::v0::detail
