// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/peer_question.hpp"

#include <algorithm>
#include <cstring>
#include <tendon/session/limits.hpp>
#include <type_traits>
#include <utility>

#include "core/text.hpp"
#include "fabric/keys/name_chunk.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "fabric.ask";
// The first byte of a message. Numbers are wire contract: append only.
constexpr std::byte kDialBack{1};  // then the announcement of the asker's node, as its key
constexpr std::byte kCable{2};     // then CableWords
constexpr std::byte kDone{0};      // then the half of a key, or nothing
constexpr std::byte kNotDone{1};   // then the reason, as text

struct CableWords {
  std::uint8_t kind = 2;
  std::uint8_t lane = 0;
  std::uint8_t reserved[14]{};
  Nonce128 asker{};
  Nonce128 connection{};
  Nonce128 half_key{};
};
static_assert(sizeof(CableWords) == 64 && std::is_trivially_copyable_v<CableWords>);

Error refused(const std::string& why) { return Error{ErrorCode::protocol_violation, kWhere, why}; }

Result<Storage> storage_of(std::byte kind, Bytes rest) {
  TENDON_TRY(memory, Storage::allocate(1 + rest.size()));
  memory.data()[0] = kind;
  if (!rest.empty()) std::memcpy(memory.data() + 1, rest.data(), rest.size());
  return memory;
}

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Result<PeerQuestion> read_dial_back(Bytes rest) {
  TENDON_TRY(announcement, parse_announcement(as_text(rest)));
  auto* const asker = std::get_if<NodeAnnouncement>(&announcement);
  if (asker == nullptr) return refused("the asker of a dial is no node");
  if (asker->addresses.empty()) return refused("the asker of a dial names no address");
  return PeerQuestion(DialBackQuestion{std::move(*asker)});
}

Result<PeerQuestion> read_cable(Bytes bytes) {
  CableWords words;
  if (bytes.size() != sizeof words) {
    return refused("a question for a cable has " + std::to_string(bytes.size()) +
                   " bytes; legal: " + std::to_string(sizeof words));
  }
  std::memcpy(&words, bytes.data(), sizeof words);
  if (std::ranges::any_of(words.reserved, [](std::uint8_t byte) { return byte != 0; }))
    return refused("a question for a cable has reserved bytes that are not zero");
  if (is_none(words.asker) || is_none(words.connection) || is_none(words.half_key))
    return refused("a question for a cable has no asker, no connection or no key");
  switch (static_cast<Lane>(words.lane)) {
    case Lane::control:
    case Lane::bulk:
      return PeerQuestion(CableQuestion{.asker = ContextId{words.asker},
                                        .connection = words.connection,
                                        .half_key = words.half_key,
                                        .lane = static_cast<Lane>(words.lane)});
  }
  return refused("a question for a cable is for the lane " + std::to_string(words.lane) +
                 "; legal: 0-1");
}

}  // namespace

Result<Storage> encode(const PeerQuestion& question) {
  if (const auto* const dial = std::get_if<DialBackQuestion>(&question)) {
    TENDON_TRY(key, to_key(dial->asker));
    return storage_of(kDialBack, bytes_of(key.text()));
  }
  const auto& cable = std::get<CableQuestion>(question);
  CableWords words;
  words.lane = static_cast<std::uint8_t>(cable.lane);
  words.asker = cable.asker.bytes;
  words.connection = cable.connection;
  words.half_key = cable.half_key;
  return storage_of(kCable, std::as_bytes(std::span(&words, 1)).subspan(1));
}

Result<Storage> encode(const PeerAnswer& answer) {
  if (!answer.why_not.empty())
    return storage_of(kNotDone, bytes_of(cleaned(answer.why_not, kMaxReasonBytes)));
  return storage_of(kDone, is_none(answer.half_key) ? Bytes() : Bytes(answer.half_key));
}

Result<PeerQuestion> read_peer_question(Bytes bytes) {
  if (bytes.empty()) return refused("a question is empty");
  if (bytes.front() == kDialBack) return read_dial_back(bytes.subspan(1));
  if (bytes.front() == kCable) return read_cable(bytes);
  return refused("a question is of kind " + std::to_string(static_cast<unsigned>(bytes.front())) +
                 "; legal: 1-2");
}

Result<PeerAnswer> read_peer_answer(Bytes bytes) {
  if (bytes.empty()) return refused("an answer is empty");
  const Bytes rest = bytes.subspan(1);
  PeerAnswer answer;
  if (bytes.front() == kNotDone) {
    if (rest.empty() || rest.size() > kMaxReasonBytes || !is_text(as_text(rest)))
      return refused("an answer that says why not has no text, or a bad one");
    answer.why_not = cleaned(as_text(rest));
    return answer;
  }
  if (bytes.front() != kDone) return refused("an answer is neither yes nor no");
  if (rest.empty()) return answer;
  if (rest.size() != answer.half_key.size()) return refused("an answer has a key of another size");
  std::memcpy(answer.half_key.data(), rest.data(), rest.size());
  if (is_none(answer.half_key)) return refused("an answer has a key that is none");
  return answer;
}

Result<KeyExpression> ask_key(const std::string& domain, const ContextId& context) {
  TENDON_TRY(chunk, name_to_chunk(domain));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + chunk + "/ask/" + context.to_string());
}

Result<KeyExpression> answer_key(const ContextId& self) {
  return KeyExpression::parse(std::string(kOwnChunk) + "/*/ask/" + self.to_string());
}

}  // namespace tendon::v0::detail
