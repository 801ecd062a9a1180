// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/publisher.hpp>

#include "fabric/plain/bare_topic.hpp"
#include "fabric/plain/plain_audience.hpp"
#include "fabric/plain/plain_outlet.hpp"
#include "fabric/plain/plain_topic.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// not_supported: the node has no Zenoh.
[[nodiscard]] Error no_plain_peers(std::string_view where);

/// How one publisher serves plain Zenoh peers: not at all, beside its channels, or as a plain peer
/// itself, which has no channels.
///
/// Owns:    its declarations at Zenoh.
/// Threads: thread-safe once it is declared.
/// Errors:  declare(): not_supported for a plain peer without Zenoh.
/// Blocks:  close(): until Zenoh took the waiting sample, or the deadline.
/// Cost:    without a plain peer: a comparison for each sample.
class PlainService {
 public:
  /// The place where samples are put, and their publisher.
  struct Source {
    std::shared_ptr<ZenohPort> zenoh;  ///< null: the node has none
    std::shared_ptr<PlainOutlet> outlet;
    ContextId context;
    std::uint32_t entity = 0;
    std::function<void()> wake;  ///< called when it may have become asked for
  };
  PlainService() = default;
  [[nodiscard]] static Result<PlainService> declare(const Source& source, const KeyExpression& key,
                                                    const PublisherOptions& options);

  /// Set: the publisher is a plain peer itself.
  [[nodiscard]] const std::shared_ptr<BareTopic>& bare() const noexcept { return bare_; }
  /// True if Zenoh reports a subscriber, beside the channels.
  [[nodiscard]] bool is_asked_for() const { return topic_ != nullptr && topic_->matches(); }
  /// Puts a sample that was published while it is asked for.
  void offer(const std::shared_ptr<const KeptSample>& sample) const { topic_->offer(sample); }
  /// While it is asked for: finds out whether by a plain peer.
  void ask_if_due() const { audience_->ask_if_due(); }
  /// All plain peers together are one: Zenoh says only whether there is any.
  [[nodiscard]] std::size_t peer_count() const;
  [[nodiscard]] PlainTopic::Counts counts() const {
    return topic_ == nullptr ? PlainTopic::Counts() : topic_->counts();
  }
  void close(Deadline deadline);

 private:
  std::shared_ptr<PlainTopic> topic_;        // puts beside the channels, or null
  std::shared_ptr<PlainAudience> audience_;  // of `topic_`
  std::shared_ptr<BareTopic> bare_;
};

}  // namespace tendon::v0::detail
