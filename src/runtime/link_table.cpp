// SPDX-License-Identifier: Apache-2.0
#include "runtime/link_table.hpp"

#include <algorithm>
#include <ranges>
#include <tendon/session/limits.hpp>
#include <tuple>
#include <utility>

#include "runtime/link_limit.hpp"

namespace tendon::v0::detail {
namespace {

bool is_of(const LinkEntry& entry, const ContextId& peer) {
  return entry.link->peer().context == peer && !entry.link->ended();
}
bool is_of(const LinkEntry& entry, const ContextId& peer, LinkRole role) {
  return entry.link->role() == role && is_of(entry, peer);
}

/// True for a link on which any process could have claimed this context id.
bool is_anybodys(const LinkEntry& entry) {
  return !entry.proofs.any() && entry.link->role() == LinkRole::acceptor;
}
/// True where the same process connects again, according to its hello.
bool is_claimed_by(const LinkEntry& entry, const PeerIdentity& peer, const LinkOrigin& origin) {
  return entry.link->peer() == peer && entry.origin.boot_id == origin.boot_id;
}

/// True where `proved` cannot be the peer of this link although both claim the same context id. A
/// holder of several keys may dial with one and be dialled with another.
bool is_anothers(const LinkEntry& entry, LinkRole role, const Proofs& proved) {
  if (entry.proofs.identity.empty() || proved.identity.empty()) return false;
  const bool may_differ =
      entry.link->role() != role && (entry.proofs.is_by_key() || proved.is_by_key());
  return !may_differ && !entry.proofs.has_name_of(proved);
}

/// Destroyed after the lock, because the end of a link takes locks that must be taken before it.
struct Dropped {
  LinkList links;
  std::shared_ptr<const LinkList> all;
};

}  // namespace

Result<void> LinkEntry::satisfies(Profile required) const {
  if (proofs.satisfy(required)) return {};
  if (required == Profile::secure) {
    return Error{ErrorCode::permission_denied, "context.profile",
                 "the link to " + link->peer_name() +
                     " is not secured by TLS, and the pipe requires profile 'secure'"};
  }
  return Error{ErrorCode::permission_denied, "context.profile",
               "the link to " + link->peer_name() +
                   " has no proof of the same host, as in profile 'plaintext', and the pipe "
                   "requires profile '" +
                   std::string(to_string(required)) + "'"};
}

LinkTable::LinkTable(const ContextId& self, std::uint32_t streams)
    : self_(self), streams_(streams), next_tick_(Clock::now() + kTick) {}

std::shared_ptr<const LinkList> LinkTable::all() const {
  const Lock lock(mutex_);
  return all_;
}

void LinkTable::refresh() {
  auto list = std::make_shared<LinkList>();
  for (const LinkEntry& entry : entries_)
    if (entry.started) list->push_back(entry.link);
  all_ = std::move(list);
}

LinkEntry* LinkTable::find(const Link& link) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const LinkEntry& entry) {
    return entry.link.get() == &link;
  });
  return found == entries_.end() ? nullptr : &*found;
}

std::shared_ptr<Link> LinkTable::usable(const ContextId& peer, Profile profile, ReachBy by,
                                        const Proofs& proved) {
  const LinkRole preferred = self_ < peer ? LinkRole::connector : LinkRole::acceptor;
  const Lock lock(mutex_);
  LinkEntry* best = nullptr;
  // A peer that has a key may claim any context id, so it is a stranger to all callers except those
  // that require this key.
  const auto is_strangers = [&](const LinkEntry& entry) {
    return entry.link->role() == LinkRole::acceptor && entry.proofs.host == Proofs::Host::unknown &&
           profile != Profile::secure;
  };
  const auto rank = [&](const LinkEntry& entry) {
    return std::tuple(!is_strangers(entry) && entry.proofs.any(),
                      !is_strangers(entry) || entry.chosen,
                      entry.link->path().kind != PathKind::routed, entry.link->role() == preferred);
  };
  for (LinkEntry& entry : entries_) {
    if (!entry.started || !is_of(entry, peer) || !entry.link->may_open()) continue;
    if (!entry.retirement.may_open()) continue;
    if (!entry.proofs.satisfy(profile)) continue;
    if (profile == Profile::secure && !entry.proofs.is_same_peer(proved)) continue;
    const bool may_be_chosen = by == ReachBy::any || (by == ReachBy::context && entry.chosen);
    if (is_strangers(entry) && !may_be_chosen) continue;
    if (best == nullptr || rank(*best) < rank(entry)) best = &entry;
  }
  if (best == nullptr) return nullptr;
  best->chosen = true;
  best->retirement.on_use();
  return best->link;
}

Result<void> LinkTable::may_reuse(const ContextId& peer, Profile profile,
                                  const Proofs& proved) const {
  const Lock lock(mutex_);
  Result<void> may;
  for (const LinkEntry& entry : entries_) {
    if (!entry.started || !is_of(entry, peer)) continue;
    may = entry.satisfies(profile);
    if (may && profile == Profile::secure && !entry.proofs.has_name_of(proved)) {
      may =
          Error{ErrorCode::permission_denied, "context.profile",
                "the link to " + entry.link->peer_name() + " is of '" + entry.proofs.identity +
                    "', and '" + proved.identity + "' asks for it, by another key or certificate"};
    }
    if (may) return {};
  }
  return may;
}

Result<void> LinkTable::may_be(const ContextId& peer, LinkRole role, const Proofs& proved) const {
  const Lock lock(mutex_);
  return may_be_now(peer, role, proved);
}

Result<void> LinkTable::may_be_now(const ContextId& peer, LinkRole role,
                                   const Proofs& proved) const {
  for (const LinkEntry& entry : entries_) {
    if (!is_of(entry, peer) || !is_anothers(entry, role, proved)) continue;
    return Error{ErrorCode::protocol_violation, "context.identity",
                 "a context that says it is " + entry.link->peer_name() + " has proved to be '" +
                     proved.identity + "', and its living link '" + entry.proofs.identity +
                     "', by another key or certificate: close the pipes of that link, which ends " +
                     std::to_string(Retirement::kRetireAfter.count()) +
                     " s later or soon after, or connect from another Context"};
  }
  return {};
}

Proofs LinkTable::key_of_dialled(const std::string& address,
                                 const std::optional<ContextId>& peer) const {
  const Lock lock(mutex_);
  for (const LinkEntry& entry : entries_ | std::views::reverse) {
    if (entry.link->role() != LinkRole::connector || entry.link->ended()) continue;
    const bool is_there = peer ? entry.link->peer().context == *peer
                               : std::ranges::find(entry.dialled, address) != entry.dialled.end();
    if (is_there && entry.proofs.is_by_key()) return entry.proofs;
  }
  return {};
}

void LinkTable::note_dialled(const Link& link, const std::string& address) {
  const Lock lock(mutex_);
  LinkEntry* const entry = find(link);
  if (entry == nullptr) return;
  std::erase(entry->dialled, address);
  if (entry->dialled.size() == kMostDialledAddresses) entry->dialled.erase(entry->dialled.begin());
  entry->dialled.push_back(address);
}

std::optional<LinkEntry> LinkTable::entry_of(const Link& link) const {
  const Lock lock(mutex_);
  for (const LinkEntry& entry : entries_)
    if (entry.link.get() == &link) return entry;
  return std::nullopt;
}

// A new one

Result<void> LinkTable::may_add(const PeerIdentity& peer, LinkRole role, const Proofs& proofs,
                                const LinkOrigin& origin) const {
  if (proofs.any()) return {};
  const Lock lock(mutex_);
  std::size_t claims = 0;
  for (const LinkEntry& entry : entries_) {
    if (!is_of(entry, peer.context, role)) continue;
    // A context's id is no secret, so any process may claim it.
    if (!entry.proofs.any() && is_claimed_by(entry, peer, origin)) return {};
    ++claims;
    if (is_anybodys(entry)) continue;
    return Error{ErrorCode::permission_denied, "context.add_link",
                 "peer " + peer.to_string() +
                     " has no proof (profile 'plaintext'), and does not end the living link of " +
                     entry.link->peer_name() + " with the same context id" +
                     (entry.proofs.any() ? ", which has one (profile 'local')" : "")};
  }
  if (claims < kMaxClaimsPerContext) return {};
  return Error{ErrorCode::permission_denied, "context.add_link",
               "peer " + peer.to_string() + " has no proof (profile 'plaintext'), and " +
                   std::to_string(claims) +
                   " other processes claim its context id already (kMaxClaimsPerContext)"};
}

Result<std::shared_ptr<Link>> LinkTable::insert(std::shared_ptr<Link> link, Proofs proofs,
                                                LinkOrigin origin) {
  const Lock lock(mutex_);
  const LinkRole role = link->role();
  TENDON_CHECK(may_be_now(link->peer().context, role, proofs));
  std::shared_ptr<Link> older;
  for (const LinkEntry& entry : entries_) {
    if (!is_of(entry, link->peer().context, role) || entry.proofs != proofs) continue;
    if (!is_anybodys(entry) || is_claimed_by(entry, link->peer(), origin)) older = entry.link;
  }
  if (older == nullptr && (is_full() || is_full_of(origin))) return full_now(role, origin);
  entries_.push_back({.link = std::move(link),
                      .proofs = std::move(proofs),
                      .origin = origin,
                      .since = Clock::now()});
  return older;
}

bool LinkTable::is_full() const {
  return entries_.size() + holders_.size() >= most_links(streams_);
}

bool LinkTable::is_full_of(const LinkOrigin& origin) const {
  if (!origin.source) return false;
  const auto count = std::ranges::count_if(
      entries_, [&](const LinkEntry& entry) { return entry.origin.source == origin.source; });
  return static_cast<std::size_t>(count) >= kMaxLinksPerSource;
}

Error LinkTable::full(LinkRole role, const LinkOrigin& origin) const {
  const Lock lock(mutex_);
  return full_now(role, origin);
}

Error LinkTable::full_now(LinkRole role, const LinkOrigin& origin) const {
  const std::size_t most = most_links(streams_);
  std::string why = "this context carries its " + std::to_string(most) + " links already";
  if (!is_full() && is_full_of(origin)) {
    why = "this context carries its " + std::to_string(kMaxLinksPerSource) +
          " links of one address already (kMaxLinksPerSource)";
  } else if (most < kMaxLinksPerContext) {
    why += ": RLIMIT_NOFILE allows no more; raise it (ulimit -n)";
  }
  return {role == LinkRole::acceptor ? ErrorCode::server_busy : ErrorCode::limit_exceeded,
          "context.add_link", std::move(why)};
}

void LinkTable::started(const Link& link) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) entry->started = true;
  refresh();
}

void LinkTable::remove(const Link& link) {
  Dropped dropped;
  const Lock lock(mutex_);
  dropped.all = all_;
  std::erase_if(entries_, [&](const LinkEntry& entry) { return entry.link.get() == &link; });
  refresh();
}

std::optional<LinkList> LinkTable::candidates_to_end(const PeerIdentity& peer,
                                                     const LinkOrigin& origin) const {
  const Lock lock(mutex_);
  const bool is_its_share = is_full_of(origin);
  if (!is_full() && !is_its_share) return std::nullopt;
  LinkList candidates;
  for (const LinkEntry& entry : entries_) {
    // The new link replaces this one.
    const bool is_its = is_of(entry, peer.context, LinkRole::acceptor) &&
                        (!is_anybodys(entry) || is_claimed_by(entry, peer, origin));
    if (is_its) return std::nullopt;
    if (is_its_share && entry.origin.source != origin.source) continue;
    if (entry.started && is_anybodys(entry)) candidates.push_back(entry.link);
  }
  return candidates;
}

// Life

void LinkTable::renew(const Link& link) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) entry->since = Clock::now();
}

void LinkTable::note_opened(const Link& link) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) {
    entry->opened = true;
    entry->retirement.on_use();
  }
}

void LinkTable::note_clock_asked(const Link& link, std::int64_t now) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) entry->clock.note_asked(now);
}

void LinkTable::note_clock(const Link& link, const ClockExchange& exchange) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) entry->clock.add(exchange);
}

std::optional<ClockOffset> LinkTable::clock_of(const Link& link, std::int64_t now) {
  const Lock lock(mutex_);
  const LinkEntry* entry = find(link);
  return entry == nullptr ? std::nullopt : entry->clock.offset(now);
}

bool LinkTable::clock_was_asked(const Link& link) {
  const Lock lock(mutex_);
  const LinkEntry* entry = find(link);
  return entry != nullptr && entry->clock.was_asked();
}

std::optional<std::chrono::nanoseconds> LinkTable::round_trip_of(const Link& link) {
  const Lock lock(mutex_);
  const LinkEntry* entry = find(link);
  return entry == nullptr ? std::nullopt : entry->clock.round_trip();
}

Retirement::Action LinkTable::tick_retirement(const Link& link, Retirement::Use use,
                                              Clock::time_point now) {
  const Lock lock(mutex_);
  LinkEntry* entry = find(link);
  return entry == nullptr ? Retirement::Action::nothing
                          : entry->retirement.on_tick(link.role(), use, now);
}

Retirement::Action LinkTable::hear_retirement(const Link& link, Retirement::Use use,
                                              Clock::time_point now) {
  const Lock lock(mutex_);
  LinkEntry* entry = find(link);
  return entry == nullptr ? Retirement::Action::nothing
                          : entry->retirement.on_word(link.role(), use, now);
}

void LinkTable::note_reported(const Link& link, SignsOfLife signs) {
  const Lock lock(mutex_);
  if (LinkEntry* entry = find(link)) entry->reported = signs;
}

void LinkTable::note_ended(const Link& link, Memory memory) {
  Dropped dropped;
  const Lock lock(mutex_);
  dropped.all = all_;
  const LinkEntry* const known = find(link);
  if (known != nullptr && memory == Memory::held) holders_.push_back(known->link);
  if (known != nullptr && memory == Memory::quarantined) {
    if (quarantined_.size() >= kMaxQuarantinedLinks) {
      dropped.links.push_back(std::move(quarantined_.front()));
      quarantined_.erase(quarantined_.begin());
    }
    quarantined_.push_back(known->link);
  }
  std::erase_if(entries_, [&](const LinkEntry& entry) { return entry.link.get() == &link; });
  refresh();
}

bool LinkTable::collect_returns(Of which) const {
  LinkList links;
  {
    const Lock lock(mutex_);
    links = holders_;
    if (which == Of::all) links.insert(links.end(), all_->begin(), all_->end());
  }
  bool moved = false;
  for (const auto& link : links) moved |= link->collect_returns();
  return moved;
}

void LinkTable::clear() {
  Dropped dropped;
  LinkList holders;
  std::vector<LinkEntry> entries;
  const Lock lock(mutex_);
  dropped.all = all_;
  dropped.links.swap(quarantined_);
  holders.swap(holders_);
  entries.swap(entries_);
  refresh();
}

// Ticks

std::optional<std::vector<LinkEntry>> LinkTable::take_tick(Clock::time_point now) {
  Dropped dropped;
  const Lock lock(mutex_);
  const auto drop_if = [&dropped](LinkList& links, auto is_done) {
    std::erase_if(links, [&](const std::shared_ptr<Link>& link) {
      if (!is_done(link->stats())) return false;
      dropped.links.push_back(link);
      return true;
    });
  };
  drop_if(quarantined_, [](const LinkStats& stats) { return stats.slots.quarantined_count == 0; });
  drop_if(holders_, [](const LinkStats& stats) { return stats.holds == 0; });
  if (now < next_tick_) return std::nullopt;
  next_tick_ = now + kTick;
  return entries_;
}

Deadline LinkTable::next_tick() const {
  const Lock lock(mutex_);
  return entries_.empty() && holders_.empty() ? Deadline::never() : Deadline::at(next_tick_);
}

std::string LinkTable::describe() const {
  const Lock lock(mutex_);
  std::string text;
  for (const LinkEntry& entry : entries_) {
    if (!entry.started) continue;
    const LinkStats stats = entry.link->stats();
    text += "link to " + entry.link->peer_name() + " by " + entry.link->path().to_string();
    text += entry.link->suspect() ? ", suspect\n" : "\n";
    text += "  sent " + std::to_string(stats.messages_sent) + " messages (" +
            std::to_string(stats.bytes_sent) + " bytes), received " +
            std::to_string(stats.messages_received) + " (" + std::to_string(stats.bytes_received) +
            " bytes)\n";
    text += "  slots with the peer " + std::to_string(stats.slots.sent_count) + " (" +
            std::to_string(stats.slots.sent_bytes) + " bytes), loaned " +
            std::to_string(stats.slots.loaned_count) + ", quarantined " +
            std::to_string(stats.slots.quarantined_count) + ", doorbells " +
            std::to_string(stats.doorbells) + "\n";
    if (stats.renewals != 0)
      text += "  session renewed " + std::to_string(stats.renewals) + " times\n";
  }
  for (const auto& link : holders_) {
    text += "ended link to " + link->peer_name() + ": " + std::to_string(link->stats().holds) +
            " holds of published slots\n";
  }
  for (const auto& link : quarantined_) {
    const LinkStats stats = link->stats();
    text += "ended link to " + link->peer_name() + ": quarantined " +
            std::to_string(stats.slots.quarantined_count) + " slots (" +
            std::to_string(stats.slots.quarantined_bytes) + " bytes)\n";
  }
  return text;
}

}  // namespace tendon::v0::detail
