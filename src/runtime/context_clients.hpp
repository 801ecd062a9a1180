// SPDX-License-Identifier: Apache-2.0
// What the Context calls: work without a caller, and listeners.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// Messages that still wait to go to a peer.
struct Unsent {
  std::string peer;  ///< empty: nothing waits
  ContextId context{};
  std::uint64_t message_count = 0;
};

/// Something that goes on without a caller waiting for it: queued sends, collectives. Called by
/// the thread that makes progress.
class Work {
 public:
  virtual ~Work() = default;
  /// Does what can be done now. True: call again after something moved. False: finished, forget it.
  virtual bool progress() = 0;
  [[nodiscard]] virtual Unsent unsent() const { return {}; }
  /// A glance without a lock: would progress() find something that no descriptor tells of? Looked
  /// at by a thread that goes to sleep, after it has announced that.
  [[nodiscard]] virtual bool has_input() const noexcept { return false; }
};

/// Takes the pipes that peers open with a ticket or for a purpose. Implemented above the runtime,
/// which knows no pipes.
class OpenHandler {
 public:
  virtual ~OpenHandler() = default;
  /// May a further peer come in? Asked before its handshake is answered.
  virtual Result<void> may_open() = 0;
  /// A sink for the new pipe that `open` describes, or why not. `said` is what the peer said beside
  /// a purpose; nothing beside a ticket. The link's receive lock is held.
  virtual Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open, Bytes said) = 0;
  /// The peer has left, or is lost when there is an `error`: what it opened and was not accepted
  /// goes, or is bounded. The link's receive lock is held.
  virtual void on_link_ended(const Link&, const Error* /*error*/) {}
  /// The Context was closed.
  virtual void on_context_closed() = 0;
};

}  // namespace tendon::v0::detail
