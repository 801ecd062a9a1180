// SPDX-License-Identifier: Apache-2.0
#include "runtime/reach.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "runtime/backoff.hpp"
#include "runtime/connect.hpp"
#include "runtime/dial_place.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.reach";
constexpr std::chrono::seconds kMostForOne{5};  // of several addresses, without a deadline

// Errors that another attempt, or another address, does not change.
bool is_final(ErrorCode code) {
  return code == ErrorCode::invalid_argument || code == ErrorCode::context_closed ||
         code == ErrorCode::forked || code == ErrorCode::limit_exceeded;
}

// Divides the time, so that an address that accepts and then stays silent does not use it all.
Deadline share(Deadline deadline, std::size_t addresses_left) {
  if (addresses_left == 1) return deadline;
  if (deadline.is_never()) return kMostForOne;
  return earlier(deadline, deadline.remaining() / addresses_left);
}

/// The attempts of one call.
class Reaching {
 public:
  Reaching(ContextCore& context, const ContextId& peer, const Security& security)
      : context_(context), peer_(peer), security_(security) {}

  [[nodiscard]] Result<std::shared_ptr<Link>> run(std::span<const std::string> addresses,
                                                  Deadline deadline);
  /// Tries each address once, without waiting for a place.
  [[nodiscard]] Result<std::shared_ptr<Link>> run_once(std::span<const std::string> addresses,
                                                       Deadline deadline);
  [[nodiscard]] std::vector<Tried> take_tried() { return std::move(tried_); }

 private:
  /// `addresses`: at least one.
  [[nodiscard]] Result<std::shared_ptr<Link>> dial_each(std::span<const std::string> addresses,
                                                        Deadline deadline);
  [[nodiscard]] Error no_address() const {
    return {ErrorCode::invalid_argument, kWhere,
            "there is no link to context " + peer_.to_string() + " and no address to reach it at"};
  }
  [[nodiscard]] std::shared_ptr<Link> known() {
    return context_.links().usable(peer_, security_.profile, ReachBy::context);
  }
  /// The last resort: a link that the peer made, or a stranger that claims its id.
  [[nodiscard]] std::shared_ptr<Link> made_by_peer() {
    return context_.links().usable(peer_, security_.profile, ReachBy::any);
  }
  void note(const std::string& address, const Error& error) {
    const auto found = std::ranges::find(tried_, address, &Tried::address);
    if (found == tried_.end()) {
      tried_.push_back({address, error});
    } else if (error.code != ErrorCode::timeout) {
      found->error = error;  // a last try without time explains less than the one before
    }
  }

  ContextCore& context_;
  const ContextId& peer_;
  const Security& security_;
  std::vector<Tried> tried_;
};

// Returns the last error, or a more decisive one. A stranger at one address may refuse although the
// peer at another would not, because hosts share addresses.
Result<std::shared_ptr<Link>> Reaching::dial_each(std::span<const std::string> addresses,
                                                  Deadline deadline) {
  std::optional<Error> last;
  std::optional<Error> refusal;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::string& address = addresses[i];
    auto connected =
        connect(context_, peer_, address, security_, share(deadline, addresses.size() - i));
    if (connected) return std::move(connected->link);
    last = std::move(connected).error();
    note(address, *last);
    if (is_final(last->code)) return *last;
    if (last->code == ErrorCode::permission_denied) refusal = last;
  }
  return refusal ? *refusal : *last;
}

Result<std::shared_ptr<Link>> Reaching::run_once(std::span<const std::string> addresses,
                                                 Deadline deadline) {
  if (auto link = known()) return link;
  if (addresses.empty()) return no_address();
  return dial_each(addresses, deadline);
}

Result<std::shared_ptr<Link>> Reaching::run(std::span<const std::string> addresses,
                                            Deadline deadline) {
  if (auto link = known()) return link;
  if (addresses.empty()) {
    if (auto link = made_by_peer()) return link;
    return no_address();
  }
  TENDON_TRY(backoff, Backoff::seeded(Backoff::kPeer));
  std::optional<Error> last;
  for (;;) {
    {
      DialPlace place(context_, context_.links().dialling(), peer_);
      std::shared_ptr<Link> link;
      const bool settled = context_.wait(nullptr, deadline, [&] {
        if (context_.unusable()) return true;
        link = known();
        return link != nullptr || place.take();
      });
      TENDON_CHECK(context_.usable(kWhere));
      if (link != nullptr) return link;
      if (!settled) {
        if (last) break;
        return Error{ErrorCode::timeout, kWhere,
                     "context " + peer_.to_string() + " was not dialled: this context dials " +
                         std::to_string(LinkTable::kMostDialling) + " others already"};
      }
      auto round = dial_each(addresses, deadline);
      if (round) return round;
      last = std::move(round).error();
      link = made_by_peer();
      if (link != nullptr) return link;
      if (is_final(last->code) || last->code == ErrorCode::permission_denied) return *last;
    }
    const auto pause = backoff.next();
    if (deadline.remaining() <= pause) break;
    context_.wait(nullptr, pause, [&] { return context_.unusable() || known() != nullptr; });
    TENDON_CHECK(context_.usable(kWhere));
  }
  return Error{ErrorCode::timeout, kWhere,
               "context " + peer_.to_string() +
                   " could not be reached before the deadline: " + last->detail};
}

}  // namespace

Reached try_to_reach(ContextCore& context, const ContextId& peer,
                     std::span<const std::string> addresses, const Security& security,
                     Deadline deadline) {
  Reaching reaching(context, peer, security);
  auto link = reaching.run(addresses, deadline);
  return {std::move(link), reaching.take_tried()};
}

Result<std::shared_ptr<Link>> reach_once(ContextCore& context, const ContextId& peer,
                                         std::span<const std::string> addresses,
                                         const Security& security, Deadline deadline) {
  return Reaching(context, peer, security).run_once(addresses, deadline);
}

}  // namespace tendon::v0::detail
