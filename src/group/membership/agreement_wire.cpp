// SPDX-License-Identifier: Apache-2.0
#include "group/membership/agreement_wire.hpp"

#include <array>
#include <cstring>

namespace tendon::v0::detail {
namespace {

using MaskWords = std::array<std::uint64_t, kMaxPlaces / 64>;

struct Wire {
  std::uint8_t kind = 0;
  std::uint8_t has_accepted = 0;
  std::uint16_t reserved = 0;
  std::uint32_t ballot_place = 0;
  std::uint64_t epoch = 0;
  std::uint64_t ballot_round = 0;
  std::uint64_t accepted_round = 0;
  std::uint32_t accepted_place = 0;
  std::uint32_t reserved_too = 0;
  MaskWords mask{};
  MaskWords second{};  // `admitted` in proposals, else `proved`
  MaskWords accepted{};
};
static_assert(sizeof(Wire) == 40 + 3 * sizeof(MaskWords));

MaskWords words_of(const MemberMask& mask) {
  MaskWords words{};
  for (std::size_t place = 0; place < kMaxPlaces; ++place)
    if (mask[place]) words[place / 64] |= std::uint64_t{1} << place % 64;
  return words;
}

MemberMask mask_of(const MaskWords& words) {
  MemberMask mask;
  for (std::size_t place = 0; place < kMaxPlaces; ++place)
    mask[place] = (words[place / 64] >> place % 64 & 1) != 0;
  return mask;
}

}  // namespace

std::vector<std::byte> encode(const AgreementMessage& message) {
  Wire wire;
  wire.kind = static_cast<std::uint8_t>(message.kind);
  wire.epoch = message.epoch;
  wire.ballot_round = message.ballot.round;
  wire.ballot_place = message.ballot.place.value;
  wire.mask = words_of(message.mask);
  const bool proposal = message.kind == AgreementMessage::Kind::propose;
  wire.second = words_of(proposal ? message.admitted : message.proved);
  if (message.accepted) {
    wire.has_accepted = 1;
    wire.accepted_round = message.accepted->ballot.round;
    wire.accepted_place = message.accepted->ballot.place.value;
    wire.accepted = words_of(message.accepted->mask);
  }
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  return {bytes.begin(), bytes.end()};
}

std::optional<AgreementMessage> decode_agreement(Bytes bytes, std::size_t places) {
  Wire wire;
  if (bytes.size() != sizeof wire) return {};
  std::memcpy(&wire, bytes.data(), sizeof wire);
  using Kind = AgreementMessage::Kind;
  if (wire.kind > static_cast<std::uint8_t>(Kind::decided) || wire.has_accepted > 1 ||
      wire.reserved != 0 || wire.reserved_too != 0)
    return {};
  AgreementMessage message;
  message.kind = static_cast<Kind>(wire.kind);
  message.epoch = wire.epoch;
  message.ballot = {wire.ballot_round, GroupPlace{wire.ballot_place}};
  message.mask = mask_of(wire.mask);
  (message.kind == Kind::propose ? message.admitted : message.proved) = mask_of(wire.second);
  if (wire.has_accepted != 0) {
    message.accepted = AgreementMessage::Accepted{
        {wire.accepted_round, GroupPlace{wire.accepted_place}}, mask_of(wire.accepted)};
  }
  MemberMask named = message.mask | message.proved | message.admitted;
  if (message.accepted) named |= message.accepted->mask;
  if (places < kMaxPlaces && (named >> places).any()) return {};
  return message;
}

}  // namespace tendon::v0::detail
