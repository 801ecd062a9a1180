// SPDX-License-Identifier: Apache-2.0
#include "runtime/reach.hpp"

#include <optional>

#include "runtime/backoff.hpp"
#include "runtime/connect.hpp"
#include "runtime/dial_place.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.reach";

// What another attempt, or another address, does not change.
bool is_final(ErrorCode code) {
  return code == ErrorCode::permission_denied || code == ErrorCode::invalid_argument ||
         code == ErrorCode::context_closed || code == ErrorCode::forked ||
         code == ErrorCode::limit_exceeded;
}

Result<std::shared_ptr<Link>> dial(ContextCore& context, const ContextId& peer,
                                   const std::string& address, Profile profile, Deadline deadline) {
  TENDON_TRY(connected, connect(context, address, profile, deadline));
  if (connected.link->peer().context == peer) return std::move(connected.link);
  return Error{ErrorCode::unreachable, kWhere,
               "at " + address + " there is " + connected.link->peer_name() + ", the context " +
                   connected.link->peer().context.to_string()};
}

}  // namespace

Result<std::shared_ptr<Link>> reach(ContextCore& context, const ContextId& peer,
                                    std::span<const std::string> addresses, Profile profile,
                                    Deadline deadline) {
  const auto known = [&] { return context.links().usable(peer, profile, ReachBy::context); };
  if (auto link = known()) return link;
  if (addresses.empty()) {
    return Error{
        ErrorCode::invalid_argument, kWhere,
        "there is no link to context " + peer.to_string() + " and no address to reach it at"};
  }
  TENDON_TRY(backoff, Backoff::seeded(Backoff::kPeer));
  std::optional<Error> last;
  for (;;) {
    {
      DialPlace place(context, context.links().dialling(), peer);
      std::shared_ptr<Link> link;
      const bool settled = context.wait(nullptr, deadline, [&] {
        if (context.unusable()) return true;
        link = known();
        return link != nullptr || place.take();
      });
      TENDON_CHECK(context.usable(kWhere));
      if (link != nullptr) return link;
      if (!settled) {
        if (last) break;
        return Error{ErrorCode::timeout, kWhere,
                     "context " + peer.to_string() + " was not dialled: this context dials " +
                         std::to_string(LinkTable::kMostDialling) + " others already"};
      }
      for (const std::string& address : addresses) {
        auto dialled = dial(context, peer, address, profile, deadline);
        if (dialled) return dialled;
        last = std::move(dialled).error();
        if (is_final(last->code)) return *last;
      }
    }
    const auto pause = backoff.next();
    if (deadline.remaining() <= pause) break;
    context.wait(nullptr, pause, [&] { return context.unusable() || known() != nullptr; });
    TENDON_CHECK(context.usable(kWhere));
  }
  return Error{
      ErrorCode::timeout, kWhere,
      "context " + peer.to_string() + " could not be reached before the deadline: " + last->detail};
}

}  // namespace tendon::v0::detail
