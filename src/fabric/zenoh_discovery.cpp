// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh_discovery.hpp"

#include <tendon/fabric/limits.hpp>
#include <tendon/observe/log.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

Result<std::shared_ptr<ZenohDiscovery>> ZenohDiscovery::create(std::shared_ptr<ZenohPort> session,
                                                               ChangeWatchers::Schedule schedule) {
  auto discovery = std::make_shared<ZenohDiscovery>(std::move(session), std::move(schedule));
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

// What this Context announces

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

// What it follows

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
  {
    const Lock lock(mutex_);
    const auto found = followed_.find(pattern);
    if (found == followed_.end() || --found->second.count > 0) return;
    gone = std::move(found->second);
    forget(gone);
    followed_.erase(found);
  }
  watchers_->changed();
}

// First the watch: what comes while the request is under way is told by either.
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

void ZenohDiscovery::ask_again(const KeyExpression& pattern, Number number) {
  ZenohPort::Handle ended;  // outlives the lock
  const Lock lock(mutex_);
  Followed* const followed = find(pattern, number);
  if (followed == nullptr) return;
  ended = std::move(followed->request);
  if (const auto asked = ask(pattern, *followed); !asked) {
    log(LogLevel::warn, "node.discovery",
        "what is announced under " + pattern.text() + " is not asked: " + asked.error().message());
  }
}

void ZenohDiscovery::begin_again() {
  std::vector<ZenohPort::Handle> ended;  // outlives the lock
  const Lock lock(mutex_);
  for (auto& [pattern, followed] : followed_) {
    ended.push_back(std::move(followed.watch));
    ended.push_back(std::move(followed.request));
    if (const auto begun = begin(pattern, followed); !begun) {
      log(LogLevel::warn, "node.discovery",
          pattern.text() + " is not followed: " + begun.error().message());
    }
  }
}

// What the session tells

ZenohDiscovery::Followed* ZenohDiscovery::find(const KeyExpression& pattern, Number number) {
  const auto found = followed_.find(pattern);
  return found == followed_.end() || found->second.number != number ? nullptr : &found->second;
}

bool ZenohDiscovery::has_room(std::size_t size_bytes) {
  if (held_.keys < kMostKeys && held_.bytes + size_bytes <= kMostKeyBytes) return true;
  if (held_.dropped++ == 0) {
    log(LogLevel::error, "node.discovery",
        "more than " + std::to_string(kMostKeys) + " announcements, or " +
            std::to_string(kMostKeyBytes) +
            " bytes of them, are followed: further ones are dropped");
  }
  return false;
}

void ZenohDiscovery::forget(Followed& followed) {
  for (const std::string& key : followed.keys) {
    keys_->remove(key);
    held_.bytes -= key.size();
  }
  held_.keys -= followed.keys.size();
  followed.keys.clear();
}

void ZenohDiscovery::on_token(const KeyExpression& pattern, Number number, TokenChange change,
                              std::string_view key) {
  {
    const Lock lock(mutex_);
    Followed* const followed = find(pattern, number);
    if (followed == nullptr) return;
    const auto found = followed->keys.find(key);
    if ((found != followed->keys.end()) == (change == TokenChange::came)) return;
    if (change == TokenChange::went) {
      held_.bytes -= found->size();
      --held_.keys;
      followed->keys.erase(found);
      keys_->remove(key);
    } else if (key.size() <= kMaxKeyBytes && has_room(key.size())) {
      followed->keys.emplace(key);
      held_.bytes += key.size();
      ++held_.keys;
      keys_->add(key);
    }
  }
  watchers_->changed();
}

void ZenohDiscovery::on_end(const KeyExpression& pattern, Number number, Ending ending) {
  {
    const Lock lock(mutex_);
    Followed* const followed = find(pattern, number);
    if (followed == nullptr) return;
    // A session that is down has nobody to ask: its requests end as if all had answered.
    if (session_->state() == SessionState::down) return;
    if (ending == Ending::complete) {
      followed->picture = Picture::complete;
    } else {
      schedule_([weak = weak_from_this(), pattern, number] {
        if (const auto self = weak.lock()) self->ask_again(pattern, number);
      });
    }
  }
  watchers_->changed();
}

// A watch is not always told what a lost connection took, and never what was there when there is a
// new one.
void ZenohDiscovery::on_state(SessionState state) {
  {
    const Lock lock(mutex_);
    for (auto& [pattern, followed] : followed_) {
      followed.picture = Picture::incomplete;
      if (state == SessionState::down) forget(followed);
    }
  }
  watchers_->changed();
  if (state == SessionState::down) return;
  schedule_([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->begin_again();
  });
}

std::string ZenohDiscovery::absence() const {
  return session_->state() == SessionState::up ? std::string() : session_->absence();
}

Picture ZenohDiscovery::picture() const {
  const Lock lock(mutex_);
  for (const auto& [pattern, followed] : followed_)
    if (followed.picture == Picture::incomplete) return Picture::incomplete;
  return Picture::complete;
}

}  // namespace tendon::v0::detail
