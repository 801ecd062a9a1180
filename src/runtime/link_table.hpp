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

/// Whether the last member event reported a peer as heard or as missing.
enum class SignsOfLife : std::uint8_t { heard, missing };

/// The connection on which a link was made. It tells apart peers that claim one identity.
struct LinkOrigin {
  Nonce128 boot_id{};              ///< as the peer's hello said it
  std::optional<Source> source{};  ///< nothing: this side made the link, or it is not counted
};

/// A link and the table's facts about it.
struct LinkEntry {
  std::shared_ptr<Link> link;
  Proofs proofs;
  LinkOrigin origin;
  /// The end of its handshake, or the time of its last lane.
  std::chrono::steady_clock::time_point since;
  bool started = false;
  bool opened = false;  ///< a pipe was opened on it
  bool chosen = false;  ///< by ReachBy::any: this side opens pipes on it from then on
  SignsOfLife reported = SignsOfLife::heard;
  std::vector<std::string> dialled{};  ///< addresses at which this side found the peer, latest last
  Retirement retirement{};
  PeerClock clock{};

  /// permission_denied if a pipe that requires `required` must not run on this link.
  [[nodiscard]] Result<void> satisfies(Profile required) const;
};

using LinkList = std::vector<std::shared_ptr<Link>>;

/// The links that a caller accepts to reach a peer.
enum class ReachBy : std::uint8_t {
  // A stranger may claim any context id, so a link without proofs is used with care.
  address,  ///< links that this side made
  context,  ///< also links that `any` has chosen before
  any,      ///< also links that the peer made, if no other reaches it
};

/// The links of a Context: at most one live link for each peer, proofs and role. Unproved links
/// that others made are told apart by the whole identity in their hellos, boot id included. So a
/// stranger that claims the id of another peer does not keep that peer out.
///
/// Owns:    the links, and the ended ones whose slots a peer may still write or read.
/// Threads: thread-safe. Under its lock it calls only those methods of links that take no lock, and
///          stats(), so it can be called under a receive lock.
/// Errors:  permission_denied, server_busy, limit_exceeded.
/// Blocks:  never.
/// Cost:    all(): a lock and a reference; a walk over the links for the rest.
class LinkTable {
 public:
  using Clock = std::chrono::steady_clock;

  /// `self`: of two links that both ends made at the same time, the one of the smaller id is used.
  /// `streams`: the bulk connections of a link, see most_links().
  LinkTable(const ContextId& self, std::uint32_t streams);

  /// The links that have started. The list is immutable.
  [[nodiscard]] std::shared_ptr<const LinkList> all() const;
  /// A live link to `peer` on which this side may open a pipe that requires `profile`, or null if
  /// `by` allows none. Preferred are, in this order: one with proofs; one that this side made or
  /// has chosen; one that is not routed; one that the smaller Context id made. It counts as used
  /// and as chosen from now on. A secure one belongs to the same peer as `proved`.
  [[nodiscard]] std::shared_ptr<Link> usable(const ContextId& peer, Profile profile, ReachBy by,
                                             const Proofs& proved = {});
  /// permission_denied when there are live links to `peer`, but none satisfies `profile` or has the
  /// name of `proved`.
  [[nodiscard]] Result<void> may_reuse(const ContextId& peer, Profile profile,
                                       const Proofs& proved = {}) const;
  /// protocol_violation if `peer` has another proved identity on a live link here than `proved`,
  /// since no Context has two names. A Context may have several keys, so the two sides of a link
  /// may use different ones, but one side never changes its key.
  [[nodiscard]] Result<void> may_be(const ContextId& peer, LinkRole role,
                                    const Proofs& proved) const;
  /// The proof by key of a living link that this side made: the latest link to `peer` or, without
  /// a `peer`, the latest one that was found at `address`. Without such a link the result proves
  /// nothing. A further connection by the same key uses that link.
  [[nodiscard]] Proofs key_of_dialled(const std::string& address,
                                      const std::optional<ContextId>& peer) const;
  /// Notes that this side has dialled `address` and found the peer of this link there. It keeps the
  /// latest kMostDialledAddresses.
  void note_dialled(const Link& link, const std::string& address);
  static constexpr std::size_t kMostDialledAddresses = 16;
  /// The current entry; nothing for a link that has ended.
  [[nodiscard]] std::optional<LinkEntry> entry_of(const Link& link) const;

  // For a new link: may_add(), then insert(), then started() or remove().
  /// permission_denied if the new link would end a better proved one, or one that this side made to
  /// another process; also if kMaxClaimsPerContext others claim its id.
  [[nodiscard]] Result<void> may_add(const PeerIdentity& peer, LinkRole role, const Proofs& proofs,
                                     const LinkOrigin& origin) const;
  /// Returns the live link that it replaces, if any; the caller ends that link. Errors: as of
  /// may_be(), and when there is no room.
  [[nodiscard]] Result<std::shared_ptr<Link>> insert(std::shared_ptr<Link> link, Proofs proofs,
                                                     LinkOrigin origin);
  void started(const Link& link);
  void remove(const Link& link);
  /// For a link that `peer` is about to make: the unproved links that could be ended for it, oldest
  /// first; only those of its source if that has used its share. Nothing while there is room.
  [[nodiscard]] std::optional<LinkList> candidates_to_end(const PeerIdentity& peer,
                                                          const LinkOrigin& origin) const;
  [[nodiscard]] Error full(LinkRole role, const LinkOrigin& origin) const;

  /// The peer was heard; it must open its first pipe within kFirstPipeTimeout from now.
  void renew(const Link& link);
  void note_opened(const Link& link);
  void note_clock_asked(const Link& link, std::int64_t now);
  void note_clock(const Link& link, const ClockExchange& exchange);
  /// The offset of the peer's clock at `now` [ns, boot_time_ns()]; nothing while it is unknown.
  [[nodiscard]] std::optional<ClockOffset> clock_of(const Link& link, std::int64_t now);
  /// True once the clock was asked; it is then asked from time to time.
  [[nodiscard]] bool clock_was_asked(const Link& link);
  /// The shortest round trip of the last exchanges; nothing before the first one.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> round_trip_of(const Link& link);
  /// See Retirement; `nothing` for a link that has ended.
  [[nodiscard]] Retirement::Action tick_retirement(const Link& link, Retirement::Use use,
                                                   Clock::time_point now);
  [[nodiscard]] Retirement::Action hear_retirement(const Link& link, Retirement::Use use,
                                                   Clock::time_point now);
  void note_reported(const Link& link, SignsOfLife signs);
  /// Removes the link. It is kept apart while its memory is `quarantined`, and while it has holds
  /// of published slots; it then counts as a link.
  enum class Memory : std::uint8_t { held, quarantined, done };
  void note_ended(const Link& link, Memory memory);
  /// Collects the slots that peers have returned on these links. False: there were none.
  enum class Of : std::uint8_t { ended_with_holds, all };
  bool collect_returns(Of which) const;
  void clear();

  // Ticks
  /// Returns all entries if the next check of heartbeats and leases is due, one every kTick.
  [[nodiscard]] std::optional<std::vector<LinkEntry>> take_tick(Clock::time_point now);
  [[nodiscard]] Deadline next_tick() const;
  static constexpr std::chrono::milliseconds kTick{500};

  // Places for calls that make a link
  /// One call per peer: the others wait until usable() has a link, or there is a place.
  [[nodiscard]] DialLimit& connecting() noexcept { return connecting_; }
  /// Calls that dial by a Context's id. Their number is small, so that many peers that appear or
  /// vanish together do not cause many handshakes.
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
