// SPDX-License-Identifier: Apache-2.0
#include <tendon/session/identity.hpp>

namespace tendon::v0 {

std::string PeerIdentity::to_string() const {
  const std::string proved = identity.empty() ? identity : identity + ", ";
  const std::string place = proved + "host " + host + ", pid " + std::to_string(pid);
  return name.empty() ? place : name + " (" + place + ")";
}

}  // namespace tendon::v0
