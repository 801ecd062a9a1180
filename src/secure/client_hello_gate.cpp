// SPDX-License-Identifier: Apache-2.0
#include "secure/client_hello_gate.hpp"

#include <string>
#include <utility>

#include "secure/tls_limits.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::size_t kRecordHeader = 5;     // type, version of two bytes, length of two bytes
constexpr std::size_t kHandshakeHeader = 4;  // type, length of three bytes
constexpr unsigned kHandshakeRecord = 0x16;
constexpr unsigned kClientHello = 1;

Error refused(std::string why) {
  return Error{ErrorCode::protocol_violation, "secure.handshake", std::move(why)};
}

}  // namespace

Result<ClientHello> look_at_client_hello(Bytes received) {
  const auto at = [&](std::size_t n) { return std::to_integer<unsigned>(received[n]); };
  const auto has = [&](std::size_t n) { return received.size() > n; };
  if (has(0) && at(0) != kHandshakeRecord)
    return refused("the peer does not speak TLS, and this listener takes nothing else");
  // Clients from before TLS 1.3 expect 3.1 there; others send 3.3.
  if ((has(1) && at(1) != 3) || (has(2) && at(2) != 1 && at(2) != 3))
    return refused("the first record is of no version of TLS");
  if (!has(kRecordHeader - 1)) return ClientHello::incomplete;
  const std::size_t length = at(3) << 8 | at(4);
  if (length < kHandshakeHeader || length > kMaxClientHelloBytes - kRecordHeader)
    return refused("the first record has " + std::to_string(length) + " bytes; legal are " +
                   std::to_string(kHandshakeHeader) + " to " +
                   std::to_string(kMaxClientHelloBytes - kRecordHeader));
  if (has(kRecordHeader) && at(kRecordHeader) != kClientHello)
    return refused("the first message is no ClientHello");
  if (has(kRecordHeader + kHandshakeHeader - 1)) {
    const std::size_t said = at(6) << 16 | at(7) << 8 | at(8);
    if (said != length - kHandshakeHeader)
      return refused("the ClientHello is not one record, but has " + std::to_string(said) +
                     " bytes in one of " + std::to_string(length));
  }
  if (received.size() > kRecordHeader + length)
    return refused("bytes follow the ClientHello before it is answered");
  return received.size() == kRecordHeader + length ? ClientHello::whole : ClientHello::incomplete;
}

}  // namespace tendon::v0::detail::secure
