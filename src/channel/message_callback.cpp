// SPDX-License-Identifier: Apache-2.0
#include "channel/message_callback.hpp"

#include <utility>

namespace tendon::v0::detail {

bool MessageCallback::due() {
  const bool runs = runner_ != std::thread::id();
  if (!untold_ || scheduled_ || runs || ended_ || caller_count_ != 0) return false;
  scheduled_ = true;
  return true;
}

void MessageCallback::schedule() {
  context_.schedule([self = shared_from_this()] { self->run(); });
}

void MessageCallback::came() {
  {
    const Lock lock(mutex_);
    untold_ = true;
    if (!due()) return;
  }
  schedule();
}

void MessageCallback::taken_all() {
  const Lock lock(mutex_);
  untold_ = false;
}

void MessageCallback::count_caller(int change) {
  {
    const Lock lock(mutex_);
    caller_count_ += change;
    if (!due()) return;
  }
  schedule();
}

void MessageCallback::run() {
  {
    const Lock lock(mutex_);
    scheduled_ = false;
    if (!untold_ || ended_ || caller_count_ != 0) return;
    untold_ = false;
    runner_ = std::this_thread::get_id();
  }
  struct Ran {
    MessageCallback& callback;
    ~Ran() { callback.ran(); }  // whatever it throws
  } const ran{*this};
  callback_();
}

void MessageCallback::ran() {
  {
    const Lock lock(mutex_);
    runner_ = {};
    ran_.notify_all();
    if (!due()) return;
  }
  schedule();
}

void MessageCallback::end() {
  const Lock lock(mutex_);
  ended_ = true;
  while (runner_ != std::thread::id() && runner_ != std::this_thread::get_id()) ran_.wait(mutex_);
}

}  // namespace tendon::v0::detail
