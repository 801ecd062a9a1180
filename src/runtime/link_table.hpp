// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "runtime/dial_limit.hpp"
#include "runtime/peer_clock.hpp"
#include "runtime/retirement.hpp"
#include "session/hello.hpp"
#include "session/proofs.hpp"
#include "session/resolve.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// What the last member event said of a peer.
enum class SignsOfLife : std::uint8_t { heard, missing };

/// The connection on which a link was made. It tells peers apart that claim one identity.
struct LinkOrigin {
  Nonce128 boot_id{};              ///< as the peer's hello said it
  std::optional<Source> source{};  ///< nothing: this side made it, or it does not count
};

/// What is known of a link beside itself.
struct LinkEntry {
  std::shared_ptr<Link> link;
  Proofs proofs;
  LinkOrigin origin;
  /// The end of its handshake, or its last lane.
  std::chrono::steady_clock::time_point since;
  bool started = false;
  bool opened = false;  ///< a pipe, once
  bool chosen = false;  ///< by ReachBy::any: from then on this side opens pipes on it
  SignsOfLife reported = SignsOfLife::heard;
  Retirement retirement{};
  PeerClock clock{};

  /// permission_denied if a pipe that requires a profile must not run on it.
  [[nodiscard]] Result<void> satisfies(Profile required) const;
};

using LinkList = std::vector<std::shared_ptr<Link>>;

/// By what a caller knows the peer that it wants to reach.
enum class ReachBy : std::uint8_t {
  // A stranger may claim any context id, so a link without proofs is used with care.
  address,  ///< links that this side made
  context,  ///< also links that `any` has chosen before
  any,      ///< also links that the peer made: nothing else reaches it
};

/// The links of a Context: at most one that lives for each peer, proofs and role. Links without
/// proofs that others made are told apart by the whole identity that their hellos claim, boot id
/// included, so a stranger that claims the id of another peer does not keep that peer out.
///
/// Owns:    the links, and the ended ones whose slots a peer may still write, or read.
/// Threads: thread-safe. Under its lock it asks links only what they answer without a lock of their
///          own, and stats(), so that it can be asked under a receive lock.
/// Errors:  permission_denied, server_busy, limit_exceeded.
/// Blocks:  never.
/// Cost:    all(): a lock and a reference; a walk over the links for the rest.
class LinkTable {
 public:
  using Clock = std::chrono::steady_clock;

  /// `self`: of two links that both ends made at the same time, the smaller id's is used.
  /// `streams`: descriptors of a link, see most_links().
  LinkTable(const ContextId& self, std::uint32_t streams);

  /// Those that have started. The list does not change.
  [[nodiscard]] std::shared_ptr<const LinkList> all() const;
  /// A live link to `peer` on which this side may open a pipe that requires `profile`; null when
  /// there is none that `by` allows. One with proofs comes first, then one that this side made or
  /// has chosen, then one that is not routed, then the one that the smaller Context id made. It
  /// counts as used, and as chosen, from now on.
  /// A secure one is of the same peer as `proved`.
  [[nodiscard]] std::shared_ptr<Link> usable(const ContextId& peer, Profile profile, ReachBy by,
                                             const Proofs& proved = {});
  /// permission_denied when there are live links to `peer` and none satisfies `profile`, or has the
  /// name of `proved`.
  [[nodiscard]] Result<void> may_reuse(const ContextId& peer, Profile profile,
                                       const Proofs& proved = {}) const;
  /// protocol_violation when `peer` has proved here that it is another one than `proved`, and that
  /// link lives: no Context has two names. A Context may have several keys, so each side of a link
  /// may use another one, but the same side does not change it.
  [[nodiscard]] Result<void> may_be(const ContextId& peer, LinkRole role,
                                    const Proofs& proved) const;
  /// As it is now; nothing for a link that has ended.
  [[nodiscard]] std::optional<LinkEntry> entry_of(const Link& link) const;

  // A new one: may_add(), then insert(), then started() or remove().
  /// permission_denied if it would end a link that is better proved, or one that this side made to
  /// another process; or if kMaxClaimsPerContext others claim its id.
  [[nodiscard]] Result<void> may_add(const PeerIdentity& peer, LinkRole role, const Proofs& proofs,
                                     const LinkOrigin& origin) const;
  /// Returns the live one that it replaces, if any: the caller ends it. Errors: as of may_be(), and
  /// when there is no room.
  [[nodiscard]] Result<std::shared_ptr<Link>> insert(std::shared_ptr<Link> link, Proofs proofs,
                                                     LinkOrigin origin);
  void started(const Link& link);
  void remove(const Link& link);
  /// For a link that `peer` is about to make: the unproved links that could give way, the oldest
  /// first; of its source alone, where that has its share. Nothing while there is room.
  [[nodiscard]] std::optional<LinkList> candidates_to_end(const PeerIdentity& peer,
                                                          const LinkOrigin& origin) const;
  [[nodiscard]] Error full(LinkRole role, const LinkOrigin& origin) const;

  /// The peer was heard: it opens its first pipe within kFirstPipeTimeout from now.
  void renew(const Link& link);
  void note_opened(const Link& link);
  void note_clock_asked(const Link& link, std::int64_t now);
  void note_clock(const Link& link, const ClockExchange& exchange);
  /// The offset of the peer's clock at `now` [ns, boot_time_ns()]; nothing while it is unknown.
  [[nodiscard]] std::optional<ClockOffset> clock_of(const Link& link, std::int64_t now);
  /// It is asked from time to time, once it was.
  [[nodiscard]] bool clock_was_asked(const Link& link);
  /// The least of the last exchanges; nothing before the first one.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> round_trip_of(const Link& link);
  /// See Retirement; `nothing` for a link that has ended.
  [[nodiscard]] Retirement::Action tick_retirement(const Link& link, Retirement::Use use,
                                                   Clock::time_point now);
  [[nodiscard]] Retirement::Action hear_retirement(const Link& link, Retirement::Use use,
                                                   Clock::time_point now);
  void note_reported(const Link& link, SignsOfLife signs);
  /// Takes it out; it is kept apart while `quarantined`, and while it has holds of published
  /// slots: then it counts as a link.
  enum class Memory : std::uint8_t { held, quarantined, done };
  void note_ended(const Link& link, Memory memory);
  /// Takes what peers have given back, on these links. False: nothing.
  enum class Of : std::uint8_t { ended_with_holds, all };
  bool collect_returns(Of which) const;
  void clear();

  // Ticks
  /// All entries if the next look at heartbeats and leases is due, one every kTick.
  [[nodiscard]] std::optional<std::vector<LinkEntry>> take_tick(Clock::time_point now);
  [[nodiscard]] Deadline next_tick() const;
  static constexpr std::chrono::milliseconds kTick{500};

  // Places for calls that make a link
  /// One call a peer: the others wait until usable() has a link, or there is a place.
  [[nodiscard]] DialLimit& connecting() noexcept { return connecting_; }
  /// Those that dial by a Context's id. A few at once, so that a crowd of peers that come or go
  /// together costs no crowd of handshakes.
  [[nodiscard]] DialLimit& dialling() noexcept { return dialling_; }
  static constexpr std::size_t kMostDialling = 16;

  /// Lines for Context::describe().
  [[nodiscard]] std::string describe() const;

 private:
  LinkEntry* find(const Link& link) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> may_be_now(const ContextId& peer, LinkRole role,
                                        const Proofs& proved) const TENDON_REQUIRES(mutex_);
  void refresh() TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool is_full() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool is_full_of(const LinkOrigin& origin) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error full_now(LinkRole role, const LinkOrigin& origin) const
      TENDON_REQUIRES(mutex_);

  const ContextId& self_;
  const std::uint32_t streams_;
  DialLimit connecting_{std::numeric_limits<std::size_t>::max()};
  DialLimit dialling_{kMostDialling};
  mutable Mutex mutex_;
  std::vector<LinkEntry> entries_ TENDON_GUARDED_BY(mutex_);
  LinkList quarantined_ TENDON_GUARDED_BY(mutex_);  // ended, with slots in quarantine
  LinkList holders_ TENDON_GUARDED_BY(mutex_);      // ended, with holds
  std::shared_ptr<const LinkList> all_ TENDON_GUARDED_BY(mutex_) = std::make_shared<LinkList>();
  Clock::time_point next_tick_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
