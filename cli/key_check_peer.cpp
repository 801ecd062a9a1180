// SPDX-License-Identifier: Apache-2.0
#include "cli/key_check_peer.hpp"

#include <fmt/format.h>

#include <string>
#include <tendon/runtime/context.hpp>
#include <tendon/session/profile.hpp>

#include "cli/output.hpp"
#include "cli/shown_warnings.hpp"
#include "runtime/connect.hpp"

namespace tendon::cli {
namespace {

Result<PeerIdentity> dial(const CredentialFiles& files, const std::string& address,
                          const std::string& name, Deadline deadline) {
  TENDON_TRY(security, Security::load(files, name));
  TENDON_TRY(context, Context::create({.name = "tendon key check"}));
  const ShownWarnings shown("pipe.connect");  // that nobody listens yet
  TENDON_TRY(connected, detail::connect(*detail::ContextCore::of(context), address,
                                        {.security = security}, deadline));
  return connected.link->peer();
}

}  // namespace

CheckedPeer check_peer(const CredentialFiles& files, const std::string& address,
                       const std::string& name, Deadline deadline) {
  auto identity = dial(files, address, name, deadline);
  if (!identity) return {address, {}, std::move(identity).error()};
  return {address, *std::move(identity), {}};
}

void print_peer(const CheckedPeer& peer) {
  if (peer.identity) {
    print_line(fmt::format("ok     {}: accepts them, and has proved to be {}: {}", peer.address,
                           peer.identity->identity, peer.identity->to_string()));
    return;
  }
  print_line(fmt::format("refuse {}\n       {} {}: {}", peer.address, error_id(peer.fault->code),
                         to_string(peer.fault->code), peer.fault->detail));
}

Value::Map document_of(const CheckedPeer& peer) {
  Value::Map document = {{"address", peer.address}, {"accepts", peer.identity.has_value()}};
  if (peer.identity) {
    document.emplace_back("identity", peer.identity->identity);
    document.emplace_back("proof", to_string(peer.identity->proof));
    document.emplace_back("peer", peer.identity->to_string());
  }
  if (peer.fault) document.emplace_back("fault", error_document(*peer.fault));
  return document;
}

}  // namespace tendon::cli
