// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/fabric/gap.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// What a subscriber receives.
///
/// Owns:    a share of the memory it lies in, which is read-only where the publisher is on this
///          host: other subscribers read the same bytes.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    on one host nothing is copied while fewer than SubscriberOptions::max_held samples of a
///          publisher are kept; beyond that, one copy.
struct Sample {
  std::string key;                ///< on which it was published
  std::string publisher;          ///< the node's name; empty for a plain Zenoh peer
  std::uint64_t incarnation = 0;  ///< of the node: when its Context was made [ns of wall clock]
  std::uint64_t sequence = 0;     ///< of this publisher: 1, 2, 3, ...
  std::uint64_t stamp = 0;        ///< when it was published [ns of CLOCK_BOOTTIME there]
  /// How old it was when it was taken, at the most: what is uncertain about the publisher's clock
  /// counts as age. Nothing without SubscriberOptions::max_age.
  std::optional<std::chrono::nanoseconds> age{};
  /// What is missing between it and the last one of this publisher, in order.
  std::vector<Gap> gaps{};
  std::optional<TensorDict> tensors{};  ///< set when a TensorDict was published; `bytes` is empty
                                        ///< then
  Storage bytes{};
  /// What a plain Zenoh peer says that its sample is, as Zenoh writes it: "application/json". UTF-8
  /// of at most kMaxEncodingBytes, which may have control characters. Empty for all others.
  std::string encoding{};
  /// A plain Zenoh peer put it (SubscriberOptions::plain): any program that reaches the routers may
  /// have. Such a peer has no name, sequence or incarnation, and nothing tells of what is missing;
  /// `stamp` is when the sample came here.
  bool plain = false;
};

}  // namespace v0
}  // namespace tendon
