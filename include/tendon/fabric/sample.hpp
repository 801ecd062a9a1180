// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/fabric/ended.hpp>
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
  std::string key;  ///< on which it was published
  /// The node's name; "a+b" for two nodes of one Context. Where discovery tells no name, "?" and
  /// the first 8 digits of the Context's id. Empty for a plain Zenoh peer.
  std::string publisher;
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
  /// The encoding that a plain Zenoh peer names, as Zenoh writes it: "application/json". UTF-8
  /// of at most kMaxEncodingBytes, which may have control characters. Empty for all others.
  std::string encoding{};
  /// A plain Zenoh peer put it (SubscriberOptions::hears_plain): any program that reaches the
  /// routers may have. Such a peer has no name, sequence or incarnation, and nothing tells of what
  /// is missing; `stamp` is when the sample came here.
  bool plain = false;
  /// Which publisher of the node it is: unique in its Context, and never used again there, so that
  /// a publisher that is declared again is another one, which begins at 1. 0 for a plain Zenoh
  /// peer.
  std::uint32_t entity = 0;
  /// Set instead of tensors and bytes where SubscriberOptions::ends asks for it: the publisher's
  /// samples end here, and `gaps` has what is missing behind the last one. `sequence` and `stamp`
  /// are 0.
  std::optional<Ended> ended{};
};

}  // namespace v0
}  // namespace tendon
