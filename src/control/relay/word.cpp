// SPDX-License-Identifier: Apache-2.0
#include "control/relay/word.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tendon/control/limits.hpp>

namespace tendon::v0::detail {
namespace {

using google::protobuf::internal::WireFormatLite;

Error no_word(std::size_t size_bytes, const std::string& why) {
  return {ErrorCode::protocol_violation, "control.pipe",
          std::to_string(size_bytes) + " bytes are no word of a worker pipe" + why};
}

/// The bytes of all fields except `resent`; empty if it is no message of Protobuf.
std::optional<std::size_t> bytes_beside_resent(Bytes bytes) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  std::size_t resent = 0;
  while (const std::uint32_t tag = in.ReadTag()) {
    const int before = in.CurrentPosition();
    if (!WireFormatLite::SkipField(&in, tag)) return std::nullopt;
    if (WireFormatLite::GetTagFieldNumber(tag) == v1::Word::kResentFieldNumber)
      resent += static_cast<std::size_t>(in.CurrentPosition() - before);
  }
  if (!in.ConsumedEntireMessage()) return std::nullopt;
  return bytes.size() - resent;
}

}  // namespace

Result<v1::Word> read_word(Bytes bytes) {
  if (bytes.size() > kMaxWordBytes) {
    const auto others = bytes.size() > kMaxStepPayloadBytes + kMaxWordBytes
                            ? std::nullopt
                            : bytes_beside_resent(bytes);
    if (!others || *others > kMaxWordBytes) {
      return no_word(bytes.size(), "; at most " + std::to_string(kMaxWordBytes) +
                                       " are legal, beside what is sent again");
    }
  }
  v1::Word word;
  if (!word.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return no_word(bytes.size(), "");
  if (word.has_heartbeat()) {
    const std::size_t size = word.heartbeat().ByteSizeLong();
    const std::size_t entries = word.heartbeat().sent().size() + word.heartbeat().applied().size() +
                                static_cast<std::size_t>(word.heartbeat().waiting_for_size());
    if (size > kMaxHeartbeatBytes || entries > kMaxHeartbeatEntries) {
      return no_word(bytes.size(), ": a heartbeat of " + std::to_string(size) + " bytes and " +
                                       std::to_string(entries) + " entries; at most " +
                                       std::to_string(kMaxHeartbeatBytes) + " and " +
                                       std::to_string(kMaxHeartbeatEntries) + " are legal");
    }
  }
  return word;
}

}  // namespace tendon::v0::detail
