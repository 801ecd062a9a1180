// SPDX-License-Identifier: Apache-2.0
#include "secure/renewed_secrets.hpp"

#include <string>
#include <utility>

#include "secure/expand_label.hpp"

namespace tendon::v0::detail::secure {

Result<RecordSecrets> renewed_secrets(Bytes renewal_key, TlsHandshake::Role role,
                                      std::string_view connection_id) {
  const std::string id(connection_id);
  TrafficSecret of_client;
  TrafficSecret of_server;
  TENDON_CHECK(expand_label("SHA2-384", renewal_key, "client " + id, of_client.bytes()));
  TENDON_CHECK(expand_label("SHA2-384", renewal_key, "server " + id, of_server.bytes()));
  if (role == TlsHandshake::Role::server) std::swap(of_client, of_server);
  return RecordSecrets{.sending = std::move(of_client), .receiving = std::move(of_server)};
}

}  // namespace tendon::v0::detail::secure
