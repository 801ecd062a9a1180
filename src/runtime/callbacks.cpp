// SPDX-License-Identifier: Apache-2.0
#include "runtime/callbacks.hpp"

#include <exception>
#include <utility>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

void Callbacks::add(std::function<void()> callback) {
  const Lock lock(mutex_);
  ready_.push_back(std::move(callback));
  count_ = ready_.size();
}

bool Callbacks::run(const ContextCore& context) {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  std::vector<std::function<void()>> callbacks;
  {
    const Lock lock(mutex_);
    callbacks.swap(ready_);
    count_ = 0;
  }
  for (const auto& callback : callbacks) {
    try {
      callback();
    } catch (const std::exception& failure) {
      context.log(LogLevel::error, "context.callback", failure.what());
    } catch (...) {
      context.log(LogLevel::error, "context.callback", "an exception that is no std::exception");
    }
  }
  return !callbacks.empty();
}

}  // namespace tendon::v0::detail
