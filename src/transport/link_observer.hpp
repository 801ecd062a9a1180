// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>

#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

class Link;

/// What a link tells the runtime. Every call comes under the link's receive lock.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  /// The peer opens a pipe; the observer attaches a sink, or returns an `error` message to it.
  /// `header` is the ticket, or what the peer says beside a purpose.
  virtual void on_open(Link& link, const Descriptor& descriptor, Bytes header) = 0;
  /// A word about the link itself that the runtime acts on: `retire`, `clock`; `device`: memory on
  /// a GPU was mapped, and has_input() sees it, of which epoll does not tell.
  virtual void on_word(Link&, const Descriptor&) {}
  /// The link is over: death proved, connection lost, protocol broken, or `goodbye` (then `error`
  /// is null).
  virtual void on_ended(Link& link, const Error* error) = 0;
};

}  // namespace tendon::v0::detail
