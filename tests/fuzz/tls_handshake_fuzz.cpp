// SPDX-License-Identifier: Apache-2.0 Bytes that an end of a secure link may receive before it
// knows its peer. The first byte selects one of four inputs: a first flight to a server, a
// ClientHello with changed bits, a second flight behind a valid ClientHello, or the answer to a
// client. The second byte is the size of the pieces. None of them is admitted, because only the
// fuzzer's own client has the secrets of its handshake.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "require.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/tls_handshake.hpp"
#include "secure/tls_limits.hpp"

namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using tendon::Bytes;
using tendon::ErrorCode;
using tendon::test::require;
using Role = TlsHandshake::Role;
using State = TlsHandshake::State;
using Holder = std::shared_ptr<const Credentials>;

Holder holder_of_key() {
  CredentialParts parts;
  parts.keys.push_back(
      {"fleet", SecretBytes::copy_of(tendon::as_bytes(std::string(kSharedKeyBytes, 'a'))), {}});
  return Credentials::make(std::move(parts)).value();
}

Holder holder_of_certificate() {
  using std::chrono::hours;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const Validity validity{now - hours(1), now + hours(1000)};
  auto authority = make_authority(validity).value();
  auto member =
      make_certificate(authority, {.name = "robot-7", .dns = {}, .addresses = {}}, validity)
          .value();
  CredentialParts parts;
  parts.chain.push_back(std::move(member.certificate));
  parts.certificate_key = std::move(member.key);
  parts.authorities.push_back(std::move(authority.certificate));
  return Credentials::make(std::move(parts)).value();
}

/// Expects that these bytes admit nobody, and cause one of two errors at most.
void endure(TlsHandshake& end, Bytes input, std::size_t piece_bytes) {
  std::vector<std::byte> output;
  while (!input.empty()) {
    const std::size_t bytes = std::min(piece_bytes, input.size());
    const auto piece = tendon::test::exact_storage(input.first(bytes));
    const auto done = end.advance(piece.bytes(), output);
    require(end.state() != State::done);
    require(output.size() <= kMaxHandshakeInputBytes);
    if (!done) {
      require(end.state() == State::failed);
      require(done.error().code == ErrorCode::protocol_violation ||
              done.error().code == ErrorCode::authentication_failed);
      return;
    }
    input = input.subspan(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static const std::array kHolders{holder_of_key(), holder_of_certificate()};
  Bytes input = std::as_bytes(std::span(data, size_bytes));
  if (input.size() < 2) return 0;
  const auto choice = std::to_integer<unsigned>(input[0]);
  const std::size_t piece_bytes = std::to_integer<std::size_t>(input[1]) * 16 + 1;
  input = input.subspan(2);
  const Holder& holder = kHolders[choice % 2];
  const auto client = TlsHandshake::make(holder, Role::client).value();
  const auto server = TlsHandshake::make(holder, Role::server).value();
  std::vector<std::byte> hello;
  client->advance({}, hello).value();
  std::vector<std::byte> answer;
  switch (choice / 2 % 4) {
    case 0:
      endure(*server, input, piece_bytes);
      break;
    case 1:
      // Three bytes each: the place, and the bits to change there.
      for (; input.size() >= 3; input = input.subspan(3)) {
        const std::size_t at =
            std::to_integer<std::size_t>(input[0]) << 8 | std::to_integer<std::size_t>(input[1]);
        hello[at % hello.size()] ^= input[2];
      }
      endure(*server, hello, piece_bytes);
      break;
    case 2:
      server->advance(hello, answer).value();
      endure(*server, input, piece_bytes);
      break;
    default:
      endure(*client, input, piece_bytes);
  }
  return 0;
}
