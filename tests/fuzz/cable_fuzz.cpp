// SPDX-License-Identifier: Apache-2.0
// Messages that anybody may put through a router: frames of a cable, questions and answers. If one
// can be read, it can be written again with the same meaning. A frame without the right tag moves
// no cable.
#include <cstdint>
#include <span>

#include "fabric/ways/cable.hpp"
#include "fabric/ways/peer_question.hpp"
#include "require.hpp"

namespace {

using namespace tendon::detail;
using tendon::Bytes;

using tendon::test::require;

template <class T>
bool is_refused(const tendon::Result<T>& read) {
  if (read) return false;
  require(read.error().code == tendon::ErrorCode::protocol_violation);
  require(!read.error().detail.empty());
  return true;
}

void read_frame(Bytes bytes) {
  static Cable cable(Nonce128{std::byte{1}}, CableEnd::asker, CableSeal::make(CableKey{}).value(),
                     8192);
  const auto frame = read_cable_frame(bytes);
  if (is_refused(frame)) return;
  require(frame->payload.size() <= tendon::kMaxCablePayloadBytes);
  require(frame->sealed.size() + frame->tag.size() == bytes.size());
  require(cable.hear(*frame) == Cable::Verdict::dropped);
  require(cable.state() == Cable::State::open);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  read_frame(input);
  if (const auto question = read_peer_question(input); !is_refused(question))
    require(read_peer_question(encode(*question).value().bytes()).value() == *question);
  if (const auto answer = read_peer_answer(input); !is_refused(answer))
    require(read_peer_answer(encode(*answer).value().bytes()).value() == *answer);
  return 0;
}
