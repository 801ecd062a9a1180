// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/profile.hpp>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

class OpenHandler;

/// Where a pipe may be opened: at `handler`, on a link that satisfies `profile`.
struct Entrance {
  std::weak_ptr<OpenHandler> handler;
  Profile profile;
  std::string address{};  ///< of the listener, with its port; empty: it listens nowhere
};

/// The tickets that a Context's listeners issue to peers in the handshake, and check when a pipe is
/// opened. A ticket needs no storage: it is the listener's number, with a code over that number and
/// the peer's Context under a key that only this object has. So a peer that sends hellos without
/// end fills nothing, and takes no place from another.
///
/// Threads: thread-safe.
/// Errors:  those of the kernel's random numbers; find() explains why a ticket opens nothing.
class Tickets {
 public:
  /// The number of a listener, until remove().
  [[nodiscard]] std::uint32_t add(Entrance entrance);
  void remove(std::uint32_t listener);

  /// A ticket that opens pipes of `peer` at `listener` for at least kTicketAge, and less than twice
  /// as long.
  [[nodiscard]] Result<Nonce128> issue(std::uint32_t listener, const ContextId& peer);
  /// Errors: server_busy when no listener issued `ticket` to `peer`, or it is too old; unreachable
  /// when that listener is closed.
  [[nodiscard]] Result<Entrance> find(const Nonce128& ticket, const ContextId& peer) const;

  /// Adds the time in which this Context listened to peers. Only that makes tickets older, because
  /// a peer is not to blame for a Context that makes no progress.
  void advance(std::chrono::milliseconds passed);

 private:
  struct Key {
    Nonce128 secret;
    std::chrono::milliseconds made;
  };
  [[nodiscard]] bool is_good(const std::optional<Key>& key) const TENDON_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint32_t, Entrance> entrances_ TENDON_GUARDED_BY(mutex_);
  std::uint32_t next_listener_ TENDON_GUARDED_BY(mutex_) = 1;  // a ticket is never all zero
  std::chrono::milliseconds now_ TENDON_GUARDED_BY(mutex_){0};
  std::optional<Key> current_ TENDON_GUARDED_BY(mutex_);
  std::optional<Key> previous_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
