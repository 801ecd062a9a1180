// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/control_parser.hpp"

#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>

#include "transport/stream/frame.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kMaxMessageBytes = sizeof(Descriptor) + kMaxInlineBytes;

// Checks the rules of tcp beyond those of check_descriptor().
std::string_view check_for_tcp(const Descriptor& descriptor) {
  if (descriptor.kind == MessageKind::segment) return "segments exist in shared memory only";
  if (descriptor.device_parts != 0) return "memory on GPUs is passed in shared memory only";
  const bool says_more =
      descriptor.kind == MessageKind::clock || descriptor.kind == MessageKind::device;
  if (descriptor.slot != 0 ||
      (!says_more && (descriptor.generation != 0 || descriptor.offset != 0))) {
    return "it names a slot, and there are none on this path";
  }
  if (!descriptor.is_inline() && descriptor.segment_or_inline_bytes != 0) {
    return "it has inline bytes without the flag";
  }
  if (has_body(descriptor.kind) &&
      descriptor.is_inline() != travels_inline(descriptor.body_bytes())) {
    return "bodies up to 8192 bytes travel beside the descriptor, longer ones in frames";
  }
  switch (descriptor.kind) {
    case MessageKind::goodbye:
      if (descriptor.pipe != 0) return "a goodbye belongs to no pipe";
      break;
    case MessageKind::open:
      if (descriptor.payload_bytes != 0 || descriptor.values_bytes != 0)
        return "more than a ticket";
      break;
    case MessageKind::error:
      if (!descriptor.is_inline()) return "an error text of more than 8192 bytes";
      break;
    default:
      break;
  }
  return {};
}

}  // namespace

std::string describe(const Descriptor& descriptor) {
  return std::string(to_string(descriptor.kind)) + " message {pipe " +
         std::to_string(descriptor.pipe) + ", sequence " + std::to_string(descriptor.sequence) +
         "}";
}

ControlParser::ControlParser(std::uint64_t cap_bytes)
    : cap_bytes_(cap_bytes), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

MutableBytes ControlParser::room() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (kBufferBytes - end_ < kMaxMessageBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, kBufferBytes - end_};
}

Result<std::optional<ControlParser::Message>> ControlParser::next() {
  const Bytes input(buffer_.get() + begin_, end_ - begin_);
  if (input.size() < sizeof(Descriptor)) return std::optional<Message>();
  Message message;
  std::memcpy(&message.descriptor, input.data(), sizeof(Descriptor));
  const Descriptor& descriptor = message.descriptor;
  std::string_view problem = check_descriptor(descriptor, cap_bytes_);
  if (problem.empty()) problem = check_for_tcp(descriptor);
  if (!problem.empty()) {
    return Error{ErrorCode::protocol_violation, "tcp.descriptor",
                 describe(descriptor) + ": " + std::string(problem) + " (kind " +
                     std::to_string(static_cast<int>(descriptor.kind)) + ", flags " +
                     std::to_string(descriptor.flags) + ", payload " +
                     std::to_string(descriptor.payload_bytes) + ", values " +
                     std::to_string(descriptor.values_bytes) + ", header " +
                     std::to_string(descriptor.header_bytes) + ", inline " +
                     std::to_string(descriptor.segment_or_inline_bytes) +
                     "; the cap of this link is " + std::to_string(cap_bytes_) + " bytes)"};
  }
  const std::size_t body_bytes = descriptor.is_inline() ? descriptor.body_bytes() : 0;
  if (body_bytes > input.size() - sizeof(Descriptor)) return std::optional<Message>();
  message.inline_body = input.subspan(sizeof(Descriptor), body_bytes);
  begin_ += sizeof(Descriptor) + body_bytes;
  return std::optional<Message>(message);
}

}  // namespace tendon::v0::detail
