// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_audience.hpp"

#include <tendon/observe/log.hpp>
#include <variant>

#include "fabric/keys/announcement.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::seconds kAskFor{2};

}  // namespace

void PlainAudience::ask_if_due() {
  ZenohPort::Handle ended;  // outlives the lock
  {
    const Lock lock(mutex_);
    const auto now = Clock::now();
    if (closed_ || open_ || (last_ && now - asked_ < kAskAgain)) return;
    asked_ = now;
    open_ = Answer{.asked = now};
    ended = std::move(request_);
  }
  ended = nullptr;
  const auto ask = [&]() -> Result<ZenohPort::Handle> {
    TENDON_TRY(pattern, pattern_of_all_subscribers(topic_));
    return zenoh_->get(
        pattern, kAskFor,
        [weak = weak_from_this()](std::string_view key) {
          if (const auto self = weak.lock()) self->on_key(key);
        },
        [weak = weak_from_this()](Ending ending) {
          if (const auto self = weak.lock()) self->on_end(ending);
        });
  };
  auto request = ask();
  const Lock lock(mutex_);
  if (request) {
    if (!closed_) request_ = *std::move(request);
    return;
  }
  open_ = std::nullopt;
  log(LogLevel::warn, "publisher.plain",
      "who subscribes to " + topic_.text() + " is not asked: " + request.error().message());
}

void PlainAudience::on_key(std::string_view key) {
  const auto announced = parse_announcement(key);
  if (!announced) return;
  const auto* const entity = std::get_if<EntityAnnouncement>(&*announced);
  if (entity == nullptr || !entity->hears_plain || !entity->topic.intersects(topic_)) return;
  const Lock lock(mutex_);
  if (open_) open_->found = Found::subscriber;
}

void PlainAudience::on_end(Ending ending) {
  {
    const Lock lock(mutex_);
    if (ending == Ending::complete) last_ = open_;
    open_ = std::nullopt;
  }
  on_answer_();
}

bool PlainAudience::is_plain() const {
  const Lock lock(mutex_);
  return last_ && last_->found == Found::nobody && Clock::now() - last_->asked < kHolds;
}

void PlainAudience::close() {
  ZenohPort::Handle ended;  // outlives the lock
  const Lock lock(mutex_);
  closed_ = true;
  ended = std::move(request_);
}

}  // namespace tendon::v0::detail
