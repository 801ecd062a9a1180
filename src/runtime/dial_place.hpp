// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/context_id.hpp>

#include "runtime/context_core.hpp"
#include "runtime/dial_limit.hpp"

namespace tendon::v0::detail {

/// Holds the place of one call in a DialLimit from take() to its destructor, which wakes callers
/// that wait for a place.
///
/// Threads: the calling one.
class DialPlace {
 public:
  DialPlace(ContextCore& context, DialLimit& limit, const ContextId& peer)
      : context_(context), limit_(limit), peer_(peer) {}
  DialPlace(const DialPlace&) = delete;
  DialPlace& operator=(const DialPlace&) = delete;
  ~DialPlace() {
    if (!taken_) return;
    limit_.end(peer_);
    context_.wake_others();
  }
  /// False: there is no place now.
  [[nodiscard]] bool take() { return taken_ = limit_.begin(peer_); }
  [[nodiscard]] bool taken() const noexcept { return taken_; }

 private:
  ContextCore& context_;
  DialLimit& limit_;
  const ContextId peer_;
  bool taken_ = false;
};

}  // namespace tendon::v0::detail
