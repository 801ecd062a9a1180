// SPDX-License-Identifier: Apache-2.0
// The kinds of links there are, in the order in which the two sides of a handshake ask for them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/session/path.hpp>

#include "runtime/admission.hpp"
#include "runtime/connector.hpp"

namespace tendon::v0::detail {

/// How two Contexts that have said hello come to a link of one kind. A new transport is a row here,
/// and what docs/architecture.md lists beside it.
struct LinkMaker {
  PathKind kind;
  /// Connecting: why it cannot link these two; empty when it can. What it has to try to know that
  /// is done then. An error ends the connect.
  Result<std::string> (Connector::*why_not)();
  /// Connecting, when it can: makes the link and says its path.
  Result<std::shared_ptr<Link>> (Connector::*connect)();
  /// Accepting: the answer to a hello with what it has to say in it. An error is a refusal. Null:
  /// nothing.
  Result<HelloMessage> (Admission::*offer)(HelloMessage answer);
  /// Accepting: the connector has chosen it. True while the handshake goes on.
  bool (Admission::*accept)(const HelloMessage& path);
};

/// Best first.
inline constexpr std::array kLinkMakers = {
    LinkMaker{.kind = PathKind::shm,
              .why_not = &Connector::why_no_memory,
              .connect = &Connector::link_by_memory,
              .offer = &Admission::offer_memory,
              .accept = &Admission::accept_memory},
    LinkMaker{.kind = PathKind::routed,
              .why_not = &Connector::why_no_cable,
              .connect = &Connector::link_by_stream,
              .offer = nullptr,
              .accept = &Admission::accept_stream},
    LinkMaker{.kind = PathKind::tcp,
              .why_not = &Connector::why_no_stream,
              .connect = &Connector::link_by_stream,
              .offer = nullptr,
              .accept = &Admission::accept_stream},
};

}  // namespace tendon::v0::detail
