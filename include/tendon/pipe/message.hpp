// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon {
inline namespace v0 {

/// The data that travels beside raw bytes.
struct MessageOptions {
  /// Information for the receiver; never used for matching.
  std::uint32_t tag = 0;
  /// At most kMaxMessageHeaderBytes [bytes]; delivered with the bytes.
  Bytes header = {};
};

/// A message of either kind, as recv_message() returns it.
///
/// Owns:    shares of the memory it arrived in.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    no copy beyond the one recv() would make.
struct Message {
  std::uint32_t tag = 0;
  Storage header;
  /// Set when a TensorDict was sent; `bytes` is empty then.
  std::optional<TensorDict> tensors;
  Storage bytes;
};

}  // namespace v0
}  // namespace tendon
