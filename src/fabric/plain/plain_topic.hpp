// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/context_id.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>

#include "fabric/plain/plain_codec.hpp"
#include "fabric/plain/plain_outlet.hpp"
#include "fabric/samples/kept_sample.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The samples of one publisher for plain Zenoh peers: its newest one, as often as the outlet's
/// thread reaches it, and only while Zenoh reports a subscriber.
///
///   offer() -> waiting -> being put -> put, or dropped
///              waiting -> dropped                        a newer one took its place
///
/// Owns:    its declarations at Zenoh; one waiting sample at most, with its memory.
/// Threads: thread-safe. Its lock is taken inside of a publisher's; nothing of Zenoh is called
///          under it.
/// Errors:  declare(): those of ZenohPort. Samples that are not put are counted.
/// Blocks:  close(): while a sample waits or is put, until its deadline.
/// Cost:    offer(): a lock and a wake-up; matches(): an atomic.
class PlainTopic : public std::enable_shared_from_this<PlainTopic> {
 public:
  /// The publisher of the samples, and their form.
  struct Source {
    ContextId context;
    std::uint32_t entity = 0;
    PlainForm form{};
    /// Called by a thread of Zenoh when matches() has changed.
    std::function<void()> on_matching = nullptr;
  };
  struct Counts {
    std::uint64_t put = 0;
    std::uint64_t dropped = 0;
  };

  [[nodiscard]] static Result<std::shared_ptr<PlainTopic>> declare(
      ZenohPort& zenoh, std::shared_ptr<PlainOutlet> outlet, const KeyExpression& key,
      Source source);
  PlainTopic(std::shared_ptr<PlainOutlet> outlet, Source source)
      : outlet_(std::move(outlet)), source_(std::move(source)) {}

  /// Offers a sample that was published while it matches().
  void offer(const std::shared_ptr<const KeptSample>& sample) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool matches() const noexcept { return matches_.load(std::memory_order_relaxed); }
  [[nodiscard]] Counts counts() const TENDON_EXCLUDES(mutex_);
  /// Lets a waiting sample be put first. Idempotent.
  void close(Deadline deadline) TENDON_EXCLUDES(mutex_);

  // Called by the outlet
  void put_newest() TENDON_EXCLUDES(mutex_);

 private:
  [[nodiscard]] Result<void> put(ZenohPublisher& publisher,
                                 const std::shared_ptr<const KeptSample>& sample);

  const std::shared_ptr<PlainOutlet> outlet_;
  const Source source_;
  std::atomic<bool> matches_{false};
  mutable Mutex mutex_;
  CondVar idle_;
  std::shared_ptr<ZenohPublisher> publisher_ TENDON_GUARDED_BY(mutex_);  // null: closed
  std::shared_ptr<const KeptSample> waiting_ TENDON_GUARDED_BY(mutex_);
  bool putting_ TENDON_GUARDED_BY(mutex_) = false;
  bool told_ TENDON_GUARDED_BY(mutex_) = false;  // the log knows why something was not put
  Counts counts_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
