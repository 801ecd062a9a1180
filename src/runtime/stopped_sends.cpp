// SPDX-License-Identifier: Apache-2.0
#include "runtime/stopped_sends.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace tendon::v0::detail {

void StoppedSends::add(const std::shared_ptr<Link>& link,
                       const std::shared_ptr<LentSample>& sample) {
  const Lock lock(mutex_);
  sends_[sample.get()] = {link, sample};
}

void StoppedSends::remove(const LentSample& sample) {
  const Lock lock(mutex_);
  sends_.erase(&sample);
}

std::size_t StoppedSends::take_back(Clock::time_point now) {
  if (!hold_too_much()) return 0;
  struct Stopped {
    Clock::time_point since;
    std::shared_ptr<Link> link;
    std::shared_ptr<LentSample> sample;
  };
  std::vector<Stopped> stopped;  // destroyed after the lock, as it may hold a link's last share
  {
    const Lock lock(mutex_);
    for (const auto& [address, send] : sends_) {
      Stopped one{{}, send.link.lock(), send.sample.lock()};
      const auto since = one.sample == nullptr ? std::nullopt : one.sample->still_since();
      one.since = since.value_or(now);
      stopped.push_back(std::move(one));
    }
  }
  std::erase_if(
      stopped, [&](const Stopped& one) { return one.link == nullptr || now - one.since < kAfter; });
  std::ranges::sort(stopped, {}, &Stopped::since);
  std::size_t count = 0;
  for (const Stopped& one : stopped) {
    if (!hold_too_much()) break;
    if (one.link->drop(*one.sample)) ++count;
  }
  return count;
}

}  // namespace tendon::v0::detail
