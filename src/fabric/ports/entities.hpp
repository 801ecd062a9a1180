// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>
#include <utility>

#include "fabric/ports/head_pages.hpp"
#include "fabric/ports/head_teller.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

class LastReceiver;

/// A publisher or a responder, to which peers open channels by its number.
class EntityDoor {
 public:
  virtual ~EntityDoor() = default;
  /// Returns the sink of a channel that a peer opens. `said` is the opening's header. The link's
  /// receive lock is held.
  [[nodiscard]] virtual Result<std::shared_ptr<MessageSink>> on_open(
      const std::shared_ptr<Link>& link, const Descriptor& open, Bytes said) = 0;
};

/// The publishers, subscribers and responders of a Context, by the numbers that peers use. It
/// receives all openings of channels of purpose `fabric` or `call`.
///
/// Owns:    none of them.
/// Threads: thread-safe; its lock is taken alone, or inside of a link's receive lock.
/// Errors:  those of Purposes.
/// Blocks:  never.
/// Cost:    a lock and a look-up for each channel.
class Entities final : public OpenHandler, public std::enable_shared_from_this<Entities> {
 public:
  /// Registers it as the handler of this Context's channels of these purposes.
  [[nodiscard]] static Result<std::shared_ptr<Entities>> create(
      std::shared_ptr<ContextCore> context, Profile profile);
  explicit Entities(std::shared_ptr<ContextCore> context)
      : context_(std::move(context)),
        heads_(context_->publishing()),
        head_teller_(std::make_shared<HeadTeller>(context_)) {}
  ~Entities() override;

  /// Refuses openings of peers from now on.
  void close();
  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept { return context_; }
  /// A number for an entity, never used again in this Context.
  [[nodiscard]] std::uint32_t next_number() noexcept { return next_.fetch_add(1); }
  /// `purpose` is that of the channels that it accepts.
  void add(Purpose purpose, std::uint32_t number, std::weak_ptr<EntityDoor> entity);
  void add(std::uint32_t number, std::weak_ptr<const LastReceiver> subscriber);
  void remove(std::uint32_t number);
  /// The receiver of a subscriber of this Context; null: there is none of that number.
  [[nodiscard]] std::shared_ptr<const LastReceiver> receiver_of(std::uint32_t subscriber);

  /// The places where publishers state their positions, on one host and over sockets.
  [[nodiscard]] HeadPages& heads() noexcept { return heads_; }
  [[nodiscard]] HeadTeller& head_teller() noexcept { return *head_teller_; }

  // The part of the publish pool that one subscription may keep, so that none starves the others
  void count_subscription(Link& link, int change) noexcept {
    subscriptions_.fetch_add(change);
    link.publish_readers.fetch_add(static_cast<std::uint32_t>(change));
  }
  /// The shares of all subscriptions of a link. Beyond them it gets copies.
  [[nodiscard]] std::uint64_t share_bytes_of(const Link& link) const noexcept {
    return share_bytes() * std::max(1u, link.publish_readers.load());
  }
  /// Half for samples under way, half for those that the reader keeps [bytes].
  [[nodiscard]] std::uint64_t share_bytes() const noexcept {
    const std::int64_t readers = std::max<std::int64_t>(kLeastReaders, subscriptions_.load());
    return context_->publishing().pool()->cap_bytes() / (2 * static_cast<std::uint64_t>(readers));
  }

  // OpenHandler
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link, const Descriptor& open,
                                               Bytes said) override;
  void on_context_closed() override {}

 private:
  static constexpr std::int64_t kLeastReaders = 4;

  const std::shared_ptr<ContextCore> context_;
  HeadPages heads_;
  const std::shared_ptr<HeadTeller> head_teller_;
  std::atomic<std::uint32_t> next_{1};
  std::atomic<std::int64_t> subscriptions_{0};
  Mutex mutex_;
  std::map<std::pair<Purpose, std::uint32_t>, std::weak_ptr<EntityDoor>> doors_
      TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::weak_ptr<const LastReceiver>> receivers_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
