// SPDX-License-Identifier: Apache-2.0
// The interfaces that the Context calls: work without a caller, and listeners.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// Messages to a peer that are not yet sent.
struct Unsent {
  std::string peer;  ///< empty: nothing is left to send
  ContextId context{};
  std::uint64_t message_count = 0;
};

/// Work that continues without a waiting caller: queued sends, collectives. It is called by the
/// thread that makes progress.
class Work {
 public:
  virtual ~Work() = default;
  /// Does all work that is possible now. True: call again after something moved. False: it is
  /// finished, drop it.
  virtual bool progress() = 0;
  [[nodiscard]] virtual Unsent unsent() const { return {}; }
  /// Without a lock: true if progress() would find input that no descriptor signals. A thread
  /// checks it before it sleeps, after it has announced the sleep.
  [[nodiscard]] virtual bool has_input() const noexcept { return false; }
};

/// Takes the pipes that peers open with a ticket or for a purpose. It is implemented above the
/// runtime, which does not know pipes.
class OpenHandler {
 public:
  virtual ~OpenHandler() = default;
  /// Checks whether a further peer may connect. Called before its handshake is answered.
  virtual Result<void> may_open() = 0;
  /// Returns a sink for the new pipe that `open` describes, or the reason for refusing it. `said`
  /// is the header that the peer sent with a purpose; it is empty with a ticket. The link's receive
  /// lock is held.
  virtual Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open, Bytes said) = 0;
  /// The peer has left; with an `error` it is lost. Pipes that it opened and nobody accepted are
  /// dropped, or bounded. The link's receive lock is held.
  virtual void on_link_ended(const Link&, const Error* /*error*/) {}
  /// The Context was closed.
  virtual void on_context_closed() = 0;
};

}  // namespace tendon::v0::detail
