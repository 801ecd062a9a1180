// SPDX-License-Identifier: Apache-2.0
#include "channel/fanout.hpp"

#include <algorithm>

namespace tendon::v0::detail {

Result<Shown> Fanout::Round::show(const std::shared_ptr<SampleChannel>& channel,
                                  const SharedMessage& sample, std::uint32_t tag,
                                  std::uint64_t share_bytes, LentSample::Keeps keeps) {
  sender_.mutex_.assert_held();
  auto shown = channel->prepare(sample, tag, share_bytes, keeps);
  if (!shown || *shown == Shown::dropped || *shown == Shown::beyond_share) return shown;
  auto& to_ring = sender_.to_ring_;
  if (*shown == Shown::shown) {
    if (std::ranges::find(to_ring, &channel->link()) == to_ring.end())
      to_ring.push_back(&channel->link());
  } else if (std::ranges::find(sender_.waiting_, channel) == sender_.waiting_.end()) {
    sender_.waiting_.push_back(channel);
  }
  return shown;
}

Fanout::Round::~Round() {
  sender_.mutex_.assert_held();
  if (!sender_.to_ring_.empty()) show_and_ring(sender_.to_ring_);
  sender_.to_ring_.clear();
  const bool fresh = !sender_.waiting_.empty() && !sender_.listed_;
  if (fresh) sender_.listed_ = true;
  sender_.mutex_.unlock();
  if (fresh) sender_.context_->add_work(sender_.shared_from_this());
}

void Fanout::remove(const std::shared_ptr<SampleChannel>& channel) {
  const Lock lock(mutex_);
  channel->end();
  std::erase(waiting_, channel);
}

bool Fanout::progress() {
  {
    const Lock lock(mutex_);
    // A failed channel is over: its sink is told why.
    const std::size_t free = std::erase_if(waiting_, [](const auto& channel) {
      const auto gone = channel->go_on();
      return !gone || *gone == Sent::done;
    });
    if (free == 0) return listed_ = !waiting_.empty();
  }
  on_room_();
  const Lock lock(mutex_);
  return listed_ = !waiting_.empty();
}

}  // namespace tendon::v0::detail
