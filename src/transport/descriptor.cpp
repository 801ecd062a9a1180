// SPDX-License-Identifier: Apache-2.0
#include "transport/descriptor.hpp"

#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

bool has_body(MessageKind kind) {
  switch (kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::error:
    case MessageKind::open:
    case MessageKind::secure:
      return true;
    case MessageKind::segment:
    case MessageKind::credit:
    case MessageKind::ack:
    case MessageKind::end:
    case MessageKind::abort:
    case MessageKind::cancel:
    case MessageKind::ping:
    case MessageKind::goodbye:
    case MessageKind::retire:
    case MessageKind::clock:
    case MessageKind::device:
    case MessageKind::head:
      return false;
  }
  return false;
}

namespace {

// 1.0 did not look at the pipe of a goodbye.
bool is_of_the_link(MessageKind kind) {
  return kind == MessageKind::retire || kind == MessageKind::clock || kind == MessageKind::device ||
         kind == MessageKind::secure;
}

}  // namespace

std::string_view check_descriptor(const Descriptor& descriptor, std::uint64_t cap_bytes) {
  if (to_string(descriptor.kind) == "unknown") return "unknown message kind";
  if ((descriptor.flags & ~Descriptor::kInline) != 0) return "unknown flags";
  if ((descriptor.reserved[0] | descriptor.reserved[1]) != 0) return "reserved bytes are not zero";
  if (descriptor.device_parts > (descriptor.kind == MessageKind::data ? 1 : 0))
    return "more device parts than are legal";
  const bool packed =
      descriptor.layout == Layout::aligned || descriptor.layout == Layout::tensordict;
  if (descriptor.kind == MessageKind::data ? !packed : descriptor.layout != Layout{})
    return "unknown layout";
  if (descriptor.header_bytes > kMaxMessageHeaderBytes) return "message header above its limit";
  if (descriptor.values_bytes > kMaxValuesBytes) return "non-tensor data above its limit";
  if (is_of_the_link(descriptor.kind) && descriptor.pipe != 0)
    return "a word about the link on a pipe";
  if (!has_body(descriptor.kind)) {
    if (descriptor.header_bytes != 0 || descriptor.values_bytes != 0 || descriptor.is_inline())
      return "a control message with a body";
    return {};
  }
  if (descriptor.kind == MessageKind::schema && descriptor.payload_bytes > kMaxSchemaBytes)
    return "schema above its limit";
  if (descriptor.payload_bytes > cap_bytes) return "payload above the link's cap";
  if (descriptor.body_bytes() > cap_bytes) return "message above the link's cap";
  if (descriptor.kind == MessageKind::secure &&
      (descriptor.header_bytes != 0 || descriptor.values_bytes != 0))
    return "a word of a renewal with a header or values";
  if ((descriptor.kind == MessageKind::error || descriptor.kind == MessageKind::open ||
       descriptor.kind == MessageKind::secure) &&
      !descriptor.is_inline() && descriptor.body_bytes() != 0)
    return "an error text, what an open says, or a word of a renewal that is not inline";
  if (descriptor.is_inline() && descriptor.segment_or_inline_bytes != descriptor.body_bytes())
    return "inline length differs from the lengths of its parts";
  if (descriptor.is_inline() && descriptor.body_bytes() > kMaxInlineBytes)
    return "inline body above its limit";
  return {};
}

}  // namespace tendon::v0::detail
