// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/zenoh_discovery.hpp"

#include <algorithm>
#include <string_view>
#include <tendon/fabric/limits.hpp>
#include <tendon/observe/log.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

namespace {

constexpr std::string_view kWhere = "node.discovery";

// Logs it, because no caller can be told: the followed set stays incomplete.
void note(const Result<void>& done, const KeyExpression& pattern) {
  if (done) return;
  log(LogLevel::warn, kWhere, pattern.text() + " is not followed: " + done.error().message());
}

}  // namespace

Result<std::shared_ptr<ZenohDiscovery>> ZenohDiscovery::create(std::shared_ptr<ZenohPort> session,
                                                               ChangeWatchers::Schedule schedule,
                                                               AddTimed add_timed) {
  auto discovery = std::make_shared<ZenohDiscovery>(std::move(session), std::move(schedule),
                                                    std::move(add_timed));
  TENDON_CHECK(discovery->open());
  return discovery;
}

Result<void> ZenohDiscovery::open() {
  TENDON_TRY(state, session_->on_state([weak = weak_from_this()](SessionState now) {
    if (const auto self = weak.lock()) self->on_state(now);
  }));
  state_ = std::move(state);
  return {};
}

// Announcements of this Context

Result<void> ZenohDiscovery::announce(const KeyExpression& key) {
  {
    const Lock lock(mutex_);
    if (const auto found = own_.find(key); found != own_.end()) {
      ++found->second.count;
      return {};
    }
    TENDON_TRY(token, session_->token(key));
    own_.emplace(key, Own{.count = 1, .token = std::move(token)});
    keys_->add(key.text());
  }
  watchers_->changed();
  return {};
}

void ZenohDiscovery::withdraw(const KeyExpression& key) {
  Own gone;  // outlives the lock
  {
    const Lock lock(mutex_);
    const auto found = own_.find(key);
    if (found == own_.end() || --found->second.count > 0) return;
    gone = std::move(found->second);
    own_.erase(found);
    keys_->remove(key.text());
  }
  watchers_->changed();
}

// Followed keys

Result<void> ZenohDiscovery::follow(const KeyExpression& pattern) {
  Followed failed;  // outlives the lock
  const Lock lock(mutex_);
  if (const auto found = followed_.find(pattern); found != followed_.end()) {
    ++found->second.count;
    return {};
  }
  Followed& followed = followed_[pattern];
  followed.count = 1;
  auto begun = begin(pattern, followed);
  if (begun) return {};
  failed = std::move(followed);
  followed_.erase(pattern);
  return begun;
}

void ZenohDiscovery::unfollow(const KeyExpression& pattern) {
  Followed gone;  // outlives the lock
  bool looks = false;
  {
    const Lock lock(mutex_);
    const auto found = followed_.find(pattern);
    if (found == followed_.end() || --found->second.count > 0) return;
    gone = std::move(found->second);
    forget(gone.keys);
    forget(gone.unconfirmed);
    followed_.erase(found);
    looks = found_room();
  }
  watchers_->changed();
  if (looks) look_again_later();
}

// The watch is first: either reports keys that appear while the request is under way.
Result<void> ZenohDiscovery::begin(const KeyExpression& pattern, Followed& followed) {
  followed.number = ++last_number_;
  TENDON_TRY(watch,
             session_->watch(pattern, [weak = weak_from_this(), pattern, number = followed.number](
                                          TokenChange change, std::string_view key) {
               if (const auto self = weak.lock()) self->on_token(pattern, number, change, key);
             }));
  followed.watch = std::move(watch);
  return ask(pattern, followed);
}

Result<void> ZenohDiscovery::ask(const KeyExpression& pattern, Followed& followed) {
  const auto on_key = [weak = weak_from_this(), pattern,
                       number = followed.number](std::string_view key) {
    if (const auto self = weak.lock()) self->on_token(pattern, number, TokenChange::came, key);
  };
  const auto on_end = [weak = weak_from_this(), pattern, number = followed.number](Ending ending) {
    if (const auto self = weak.lock()) self->on_end(pattern, number, ending);
  };
  TENDON_TRY(request, session_->get(pattern, kAskFor, on_key, on_end));
  followed.request = std::move(request);
  return {};
}

void ZenohDiscovery::begin_again() {
  std::vector<ZenohPort::Handle> ended;  // outlives the lock
  const Lock lock(mutex_);
  for (auto& [pattern, followed] : followed_) {
    ended.push_back(std::move(followed.watch));
    ended.push_back(std::move(followed.request));
    note(begin(pattern, followed), pattern);
  }
}

void ZenohDiscovery::look_again_later() {
  std::chrono::milliseconds pause{};
  {
    const Lock lock(mutex_);
    if (std::exchange(looks_later_, true)) return;
    pause = pause_;
    pause_ = std::min(2 * pause_, kLastPause);
  }
  if (add_timed_) return add_timed_(pause, weak_from_this());
  schedule_([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_time();
  });
}

void ZenohDiscovery::on_time() {
  std::vector<ZenohPort::Handle> ended;  // outlives the lock
  const Lock lock(mutex_);
  looks_later_ = false;
  if (session_->state() == SessionState::down) return;
  for (auto& [pattern, followed] : followed_) {
    const Next next = std::exchange(followed.next, Next::nothing);
    if (next == Next::nothing) continue;
    ended.push_back(std::move(followed.request));
    followed.missed = Missed::nothing;
    if (next == Next::ask) {
      note(ask(pattern, followed), pattern);
      continue;
    }
    ended.push_back(std::move(followed.watch));
    followed.unconfirmed.merge(followed.keys);
    note(begin(pattern, followed), pattern);
  }
}

// Events of the session

ZenohDiscovery::Followed* ZenohDiscovery::find(const KeyExpression& pattern, Number number) {
  const auto found = followed_.find(pattern);
  return found == followed_.end() || found->second.number != number ? nullptr : &found->second;
}

bool ZenohDiscovery::has_room(std::size_t size_bytes) {
  if (held_.keys < kMostKeys && held_.bytes + size_bytes <= kMostKeyBytes) return true;
  held_.wants_room = true;
  if (held_.dropped++ == 0) {
    log(LogLevel::error, kWhere,
        "more than " + std::to_string(kMostKeys) + " announcements, or " +
            std::to_string(kMostKeyBytes) +
            " bytes of them, are followed: further ones are dropped, and asked for again when "
            "there is room");
  }
  return false;
}

bool ZenohDiscovery::found_room() {
  const bool has_some =
      held_.keys + kRoomToAsk <= kMostKeys && held_.bytes + kRoomToAskBytes <= kMostKeyBytes;
  if (!held_.wants_room || !has_some) return false;
  held_.wants_room = false;
  for (auto& [pattern, followed] : followed_)
    if (followed.missed == Missed::keys) followed.next = Next::ask;
  return true;
}

void ZenohDiscovery::forget(Keys& keys, Keys::const_iterator key) {
  keys_->remove(*key);
  --held_.keys;
  held_.bytes -= key->size();
  keys.erase(key);
}

void ZenohDiscovery::forget(Keys& keys) {
  while (!keys.empty()) forget(keys, keys.begin());
}

bool ZenohDiscovery::take(Followed& followed, TokenChange change, std::string_view key) {
  const auto found = followed.keys.find(key);
  const auto unconfirmed = followed.unconfirmed.find(key);
  if (change == TokenChange::went) {
    if (found != followed.keys.end()) {
      forget(followed.keys, found);
    } else if (unconfirmed != followed.unconfirmed.end()) {
      forget(followed.unconfirmed, unconfirmed);
    } else {
      return false;
    }
    return true;
  }
  if (found != followed.keys.end() || key.size() > kMaxKeyBytes) return false;
  if (unconfirmed != followed.unconfirmed.end()) {
    followed.keys.insert(followed.unconfirmed.extract(unconfirmed));
    return false;
  }
  if (has_room(key.size())) {
    followed.keys.emplace(key);
    held_.bytes += key.size();
    ++held_.keys;
    keys_->add(key);
    return true;
  }
  if (followed.missed == Missed::nothing) followed.missed = Missed::keys;
  return std::exchange(followed.picture, Picture::incomplete) == Picture::complete;
}

void ZenohDiscovery::on_token(const KeyExpression& pattern, Number number, TokenChange change,
                              std::string_view key) {
  bool looks = false;
  {
    const Lock lock(mutex_);
    Followed* const followed = find(pattern, number);
    if (followed == nullptr) return;
    if (change == TokenChange::missed) {
      followed->missed = Missed::changes;
      followed->next = Next::begin;
      followed->picture = Picture::incomplete;
      looks = true;
    } else {
      if (!take(*followed, change, key)) return;
      looks = found_room();
    }
  }
  watchers_->changed();
  if (looks) look_again_later();
}

void ZenohDiscovery::on_end(const KeyExpression& pattern, Number number, Ending ending) {
  bool looks = false;
  {
    const Lock lock(mutex_);
    Followed* const followed = find(pattern, number);
    if (followed == nullptr) return;
    // A session that is down has nobody to ask: its requests end as if all had answered.
    if (session_->state() == SessionState::down) return;
    if (ending == Ending::complete) {
      forget(followed->unconfirmed);
      if (followed->missed == Missed::nothing) followed->picture = Picture::complete;
      if (whole_picture() == Picture::complete) pause_ = kFirstPause;
      looks = found_room();
    } else {
      if (followed->next == Next::nothing) followed->next = Next::ask;
      looks = true;
    }
  }
  watchers_->changed();
  if (looks) look_again_later();
}

// A watch does not always report the losses of a broken connection, and never the keys that exist
// when there is a new one.
void ZenohDiscovery::on_state(SessionState state) {
  const bool is_up = state == SessionState::up;
  {
    const Lock lock(mutex_);
    for (auto& [pattern, followed] : followed_) {
      followed.picture = Picture::incomplete;
      followed.missed = Missed::nothing;
      followed.next = Next::nothing;
      if (is_up) continue;
      forget(followed.keys);
      forget(followed.unconfirmed);
    }
    if (!is_up) held_.wants_room = false;
  }
  watchers_->changed();
  if (!is_up) return;
  schedule_([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->begin_again();
  });
}

std::string ZenohDiscovery::absence() const {
  return session_->state() == SessionState::up ? std::string() : session_->absence();
}

Picture ZenohDiscovery::picture() const {
  const Lock lock(mutex_);
  return whole_picture();
}

Picture ZenohDiscovery::whole_picture() const {
  for (const auto& [pattern, followed] : followed_)
    if (followed.picture == Picture::incomplete) return Picture::incomplete;
  return Picture::complete;
}

}  // namespace tendon::v0::detail
