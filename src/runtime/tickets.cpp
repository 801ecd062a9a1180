// SPDX-License-Identifier: Apache-2.0
#include "runtime/tickets.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>

#include "secure/octets.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.ticket";

// The listener's number takes 4 bytes, and the code fills the rest.
constexpr std::size_t kNumberBytes = sizeof(std::uint32_t);

Result<Nonce128> make_ticket(const Nonce128& secret, std::uint32_t listener,
                             const ContextId& peer) {
  std::array<std::byte, kNumberBytes + sizeof(Nonce128)> claim{};
  std::memcpy(claim.data(), &listener, kNumberBytes);
  std::memcpy(claim.data() + kNumberBytes, peer.bytes.data(), peer.bytes.size());
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), as_octets(claim.data()),
           claim.size(), code.data(), nullptr) == nullptr) {
    return Error{ErrorCode::internal, kWhere, "libcrypto has no HMAC with SHA-256"};
  }
  Nonce128 ticket{};
  std::memcpy(ticket.data(), &listener, kNumberBytes);
  std::memcpy(ticket.data() + kNumberBytes, code.data(), ticket.size() - kNumberBytes);
  return ticket;
}

}  // namespace

std::uint32_t Tickets::add(Entrance entrance) {
  const Lock lock(mutex_);
  entrances_.emplace(next_listener_, std::move(entrance));
  return next_listener_++;
}

void Tickets::remove(std::uint32_t listener) {
  const Lock lock(mutex_);
  entrances_.erase(listener);
}

bool Tickets::is_good(const std::optional<Key>& key) const {
  return key && now_ - key->made < 2 * kTicketAge;
}

Result<Nonce128> Tickets::issue(std::uint32_t listener, const ContextId& peer) {
  const Lock lock(mutex_);
  if (!current_ || now_ - current_->made >= kTicketAge) {
    TENDON_TRY(secret, random_nonce());
    previous_ = current_;
    current_ = Key{secret, now_};
  }
  return make_ticket(current_->secret, listener, peer);
}

Result<Entrance> Tickets::find(const Nonce128& ticket, const ContextId& peer) const {
  std::uint32_t listener = 0;
  std::memcpy(&listener, ticket.data(), kNumberBytes);
  const Lock lock(mutex_);
  for (const auto* key : {&current_, &previous_}) {
    if (!is_good(*key)) continue;
    TENDON_TRY(expected, make_ticket((*key)->secret, listener, peer));
    if (CRYPTO_memcmp(expected.data(), ticket.data(), ticket.size()) != 0) continue;
    const auto found = entrances_.find(listener);
    if (found == entrances_.end())
      return Error{ErrorCode::unreachable, kWhere, "the listener was closed"};
    return found->second;
  }
  return Error{ErrorCode::server_busy, kWhere,
               "no listener here gave this ticket to this peer in the last " +
                   std::to_string(kTicketAge.count()) + " s: connect again"};
}

void Tickets::advance(std::chrono::milliseconds passed) {
  const Lock lock(mutex_);
  now_ += passed;
}

}  // namespace tendon::v0::detail
