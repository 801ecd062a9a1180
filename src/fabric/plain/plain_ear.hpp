// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "fabric/plain/plain_inbox.hpp"
#include "fabric/ways/dialler.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The session by which the subscribers of a Context hear plain Zenoh peers. It accepts messages of
/// kMaxZenohBytes. The session of discovery accepts none above kMaxQuietZenohBytes, so that a node
/// without such subscribers keeps no large message of a stranger.
///
///   none -> open     the first subscriber, or a later attempt, has reached a router
///   none -> wanted   no router answered at once: the Dialler tries again
///   wanted -> open   all that wait listen from then on
///
/// Owns:    the session.
/// Threads: thread-safe.
/// Errors:  those of `open`, except for a router that does not answer.
/// Blocks:  hear() for kFirstTry at most, once; the destructor as that of the session.
/// Cost:    a session of Zenoh, from the first subscriber on.
class PlainEar : public std::enable_shared_from_this<PlainEar> {
 public:
  using Open = std::function<Result<std::shared_ptr<ZenohPort>>(Deadline)>;
  static constexpr std::chrono::milliseconds kFirstTry{1000};

  PlainEar(Open open, std::shared_ptr<Dialler> dialler)
      : open_(std::move(open)), dialler_(std::move(dialler)) {}

  /// Makes `inbox` listen from now on, or as soon as a router answers.
  [[nodiscard]] Result<void> hear(const std::shared_ptr<PlainInbox>& inbox) TENDON_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { none, wanted, open };

  [[nodiscard]] Dialler::Outcome try_again(Deadline deadline) TENDON_EXCLUDES(mutex_);

  const Open open_;
  const std::shared_ptr<Dialler> dialler_;
  Mutex mutex_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::none;
  std::shared_ptr<ZenohPort> port_ TENDON_GUARDED_BY(mutex_);  // null before it is open
  std::vector<std::weak_ptr<PlainInbox>> waiting_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
