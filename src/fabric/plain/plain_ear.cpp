// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_ear.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.plain";

bool is_of_the_moment(const Error& error) {
  return error.code == ErrorCode::unreachable || error.code == ErrorCode::timeout;
}

}  // namespace

Result<void> PlainEar::hear(const std::shared_ptr<PlainInbox>& inbox) {
  std::shared_ptr<ZenohPort> port;
  {
    const Lock lock(mutex_);
    if (state_ == State::none) {
      auto opened = open_(kFirstTry);
      if (opened) {
        port_ = *std::move(opened);
        state_ = State::open;
      } else if (is_of_the_moment(opened.error())) {
        log(LogLevel::warn, kWhere,
            "plain Zenoh peers are heard when a router answers: " + opened.error().detail);
        state_ = State::wanted;
      } else {
        return std::move(opened).error();
      }
    }
    port = port_;
    if (port == nullptr) waiting_.push_back(inbox);
  }
  if (port != nullptr) return inbox->listen(*port);
  // All sessions of the Context share the Dialler.
  const std::string target = "plain ear " + std::to_string(reinterpret_cast<std::uintptr_t>(this));
  dialler_->want({.key = target,
                  .peer = target,
                  .attempt =
                      [weak = weak_from_this()](const Dialler::Dial& dial) {
                        const auto self = weak.lock();
                        return self == nullptr ? Dialler::Outcome::done
                                               : self->try_again(dial.deadline);
                      },
                  .whence = Dialler::Whence::user});
  return {};
}

Dialler::Outcome PlainEar::try_again(Deadline deadline) {
  auto opened = open_(deadline);
  if (!opened) {
    const bool gives_up = !is_of_the_moment(opened.error());
    if (gives_up) log(LogLevel::error, kWhere, "no plain peers: " + opened.error().detail);
    return gives_up ? Dialler::Outcome::done : Dialler::Outcome::unreached;
  }
  const std::shared_ptr<ZenohPort> port = *std::move(opened);
  std::vector<std::weak_ptr<PlainInbox>> waiting;
  {
    const Lock lock(mutex_);
    port_ = port;
    state_ = State::open;
    waiting.swap(waiting_);
  }
  for (const auto& weak : waiting) {
    const auto inbox = weak.lock();
    if (inbox == nullptr) continue;
    if (const auto listens = inbox->listen(*port); !listens)
      log(LogLevel::warn, kWhere, "a subscriber hears no plain peers: " + listens.error().detail);
  }
  return Dialler::Outcome::done;
}

}  // namespace tendon::v0::detail
