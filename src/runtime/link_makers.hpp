// SPDX-License-Identifier: Apache-2.0
// The kinds of links, in the order in which the two sides of a handshake try them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/session/path.hpp>

#include "runtime/admission.hpp"
#include "runtime/connector.hpp"

namespace tendon::v0::detail {

/// How two Contexts make a link of one kind after their hellos. A new transport needs a row here,
/// and the parts that docs/architecture.md lists.
struct LinkMaker {
  PathKind kind;
  /// Connecting: why it cannot link these two; empty when it can. It also makes the attempts that
  /// this answer needs. An error ends the connect.
  Result<std::string> (Connector::*why_not)();
  /// Connecting, when it can: makes the link and sends its path.
  Result<std::shared_ptr<Link>> (Connector::*connect)();
  /// Accepting: adds its part to the answer to a hello. An error is a refusal. Null: adds nothing.
  Result<HelloMessage> (Admission::*offer)(HelloMessage answer);
  /// Accepting: the connector has chosen this kind. True while the handshake continues.
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
