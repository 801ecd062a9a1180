// SPDX-License-Identifier: Apache-2.0
// The memory of a shm link as each of its sides sees it, without links.
#pragma once

#include <sys/eventfd.h>

#include <memory>

#include "transport/shm/shm_link.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::test {

struct ShmSides {
  static constexpr std::uint64_t kCapBytes = 1 << 20;

  static detail::OwnedFd doorbell() { return detail::OwnedFd(eventfd(0, EFD_NONBLOCK)); }

  const std::shared_ptr<detail::Segment> a = detail::make_control_segment({}).value();
  const std::shared_ptr<detail::Segment> b = detail::make_control_segment({}).value();
  detail::ShmMemory sender{a, b, doorbell(), kCapBytes};
  detail::ShmMemory receiver{b, a, doorbell(), kCapBytes};

  /// The sleep word of each side.
  detail::SleepWord<> sender_sleep{sender.mine().sleeping};
  detail::SleepWord<> receiver_sleep{receiver.mine().sleeping};
};

}  // namespace tendon::test
