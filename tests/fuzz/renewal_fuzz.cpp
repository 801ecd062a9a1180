// SPDX-License-Identifier: Apache-2.0
// The words by which the peer of a link renews its session. The first byte selects the end under
// test (bit 0: the server). Each piece behind it is a word, its length, and its bytes; 0x40 as a
// word hands over the next word of an honest peer, and 0x41 the switch of its keys.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "require.hpp"
#include "secure/renewal.hpp"

namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using tendon::Bytes;
using tendon::ErrorCode;
using tendon::test::require;
using Role = TlsHandshake::Role;

constexpr std::byte kHonestWord{0x40};
constexpr std::byte kHonestSwitch{0x41};
constexpr Renewal::TimePoint kNow{};

struct Said {
  RenewalWord word;
  std::vector<std::byte> bytes;
};

struct End {
  Renewal renewal;
  std::deque<Said> said{};
  bool has_failed = false;

  void act(const RenewalStep& step) {
    require(!has_failed || (!step.agreed && !step.switches && !step.failed));
    require(step.handshake.size() <= 64 * 1024);
    require(!step.failed || (!step.agreed && !step.switches && step.handshake.empty()));
    if (!step.handshake.empty()) said.push_back({RenewalWord::handshake, step.handshake});
    if (step.word) said.push_back({*step.word, {}});
    if (!step.failed) return;
    has_failed = true;
    require(renewal.state() == RenewalState::failed);
    require(step.failed->code == ErrorCode::protocol_violation ||
            step.failed->code == ErrorCode::authentication_failed);
    require(!step.word || step.failed->code == ErrorCode::authentication_failed);
  }
};

RenewalTerms terms_of(Role role) {
  static const auto kCredentials = [] {
    CredentialParts parts;
    parts.keys.push_back({"fleet", SecretBytes(kSharedKeyBytes), {}});
    return Credentials::make(std::move(parts)).value();
  }();
  RenewalTerms terms;
  terms.role = role;
  terms.credentials = kCredentials;
  terms.own_identity = terms.identity = "key:fleet";
  return terms;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Bytes input = std::as_bytes(std::span(data, size_bytes));
  if (input.empty()) return 0;
  const bool is_server = (input[0] & std::byte{1}) != std::byte{0};
  input = input.subspan(1);
  End end{Renewal(terms_of(is_server ? Role::server : Role::client), kNow)};
  End honest{Renewal(terms_of(is_server ? Role::client : Role::server), kNow)};
  End& client = is_server ? honest : end;
  client.act(client.renewal.begin(0, kNow));
  std::uint64_t agreed = 0;
  while (input.size() >= 2) {
    const std::byte word = input[0];
    const std::size_t size =
        std::min(std::to_integer<std::size_t>(input[1]) * 65, input.size() - 2);
    const auto bytes = tendon::test::exact_storage(input.subspan(2, size));
    input = input.subspan(2 + size);
    if (word == kHonestWord) {
      while (!end.said.empty() && !honest.has_failed) {
        const Said next = std::move(end.said.front());
        end.said.pop_front();
        honest.act(honest.renewal.hear(next.word, next.bytes, kNow));
      }
      if (honest.said.empty()) continue;
      const Said next = std::move(honest.said.front());
      honest.said.pop_front();
      end.act(end.renewal.hear(next.word, next.bytes, kNow));
    } else if (word == kHonestSwitch) {
      end.act(end.renewal.note_switched());
      if (!honest.has_failed) honest.act(honest.renewal.note_switched());
    } else {
      end.act(end.renewal.hear(static_cast<RenewalWord>(word), bytes.bytes(), kNow));
    }
    // Only the honest peer has the key.
    agreed = std::max(agreed, honest.renewal.count());
    require(end.renewal.count() <= agreed + 1);
  }
  return 0;
}
