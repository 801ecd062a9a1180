// SPDX-License-Identifier: Apache-2.0
#include "group/membership/envelope.hpp"

#include <cstring>

namespace tendon::v0::detail {

std::optional<Envelope> read_envelope(Bytes header) {
  if (header.size() != sizeof(Envelope)) return {};
  Envelope envelope;
  std::memcpy(&envelope, header.data(), sizeof envelope);
  switch (envelope.kind) {
    case EnvelopeKind::join:
    case EnvelopeKind::neighbour:
    case EnvelopeKind::hello:
    case EnvelopeKind::refuse:
    case EnvelopeKind::ready:
    case EnvelopeKind::abort:
    case EnvelopeKind::agreement:
    case EnvelopeKind::collective:
    case EnvelopeKind::message:
    case EnvelopeKind::left:
      return envelope;
  }
  return {};
}

}  // namespace tendon::v0::detail
