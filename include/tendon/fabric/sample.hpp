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

/// A received sample.
///
/// Owns:    a share of the memory in which it lies; that is read-only where the publisher is on
///          this host, because other subscribers read the same bytes.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    on one host nothing is copied while fewer than SubscriberOptions::max_held samples of a
///          publisher are kept; beyond that, one copy.
struct Sample {
  std::string key;  ///< of its topic
  /// The node's name; "a+b" for two nodes of one Context. Where discovery knows no name, "?" and
  /// the first 8 digits of the Context's id. Empty for a plain Zenoh peer.
  std::string publisher;
  std::uint64_t incarnation = 0;  ///< of the node: when its Context was made [ns of wall clock]
  std::uint64_t sequence = 0;     ///< of this publisher: 1, 2, 3, ...
  std::uint64_t stamp = 0;        ///< time of publishing [ns of CLOCK_BOOTTIME there]
  /// Its greatest possible age when it was taken: the uncertainty of the publisher's clock counts
  /// as age. Empty without SubscriberOptions::max_age.
  std::optional<std::chrono::nanoseconds> age{};
  /// The samples that are missing between it and the last one of this publisher, in order.
  std::vector<Gap> gaps{};
  std::optional<TensorDict> tensors{};  ///< set when a TensorDict was published; `bytes` is empty
                                        ///< then
  Storage bytes{};
  /// The encoding that a plain Zenoh peer names, as Zenoh writes it: "application/json". UTF-8 of
  /// at most kMaxEncodingBytes, with control characters perhaps. Empty for all others.
  std::string encoding{};
  /// A plain Zenoh peer put it (SubscriberOptions::hears_plain), that is, any program that reaches
  /// the routers. Such a peer has no name, sequence or incarnation, and missing samples are not
  /// noticed; `stamp` is the time of arrival here.
  bool plain = false;
  /// The number of the publisher, unique in its Context and never used again there. A publisher
  /// that is declared again is therefore another one, which begins at 1. 0 for a plain Zenoh peer.
  std::uint32_t entity = 0;
  /// Set instead of tensors and bytes where SubscriberOptions::ends asks for it. The publisher's
  /// samples end here, and `gaps` has those that are missing after the last one. `sequence` and
  /// `stamp` are 0.
  std::optional<Ended> ended{};
};

}  // namespace v0
}  // namespace tendon
