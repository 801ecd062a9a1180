// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/publisher.hpp>
#include <utility>
#include <vector>

#include "channel/fanout.hpp"
#include "channel/kept_body.hpp"
#include "fabric/plain/plain_service.hpp"
#include "fabric/ports/entities.hpp"
#include "fabric/ports/head_pages.hpp"
#include "fabric/ports/node_port.hpp"
#include "fabric/ports/subscription_request.hpp"
#include "fabric/samples/sample_history.hpp"
#include "fabric/topics/gpu_samples.hpp"
#include "fabric/topics/lost_readers.hpp"
#include "fabric/topics/subscription.hpp"
#include "runtime/peer_clock.hpp"

namespace tendon::v0::detail {

/// One history of samples, and a cursor in it for each subscription.
///
/// Every event shows as much as possible: a published sample, a credit, room on a link. So a
/// subscription is either at the end of the history, or waits for one of these.
///
/// Owns:    history and subscriptions.
/// Threads: thread-safe. Its lock is taken after a link's receive lock and before that of its
///          Fanout. It must not be destroyed under a receive lock, so its owner calls end() first:
///          no subscription has a share when that returns. OpenHandler keeps one while a peer
///          subscribes.
/// Errors:  as Publisher.
/// Blocks:  as Publisher.
/// Cost:    publish(): the copy of the sample, a lock, and the cost of each open channel.
class PublisherCore final : public EntityDoor,
                            public HeadSource,
                            public Timed,
                            public std::enable_shared_from_this<PublisherCore> {
 public:
  /// The clock for stamps [ns].
  using Clock = std::int64_t (*)() noexcept;

  /// Makes a publisher that `node` announces.
  [[nodiscard]] static Result<std::shared_ptr<PublisherCore>> create(
      std::shared_ptr<NodePort> node, KeyExpression key, const PublisherOptions& options,
      Clock clock = boot_time_ns);
  PublisherCore(std::shared_ptr<NodePort> node, KeyExpression key, const PublisherOptions& options,
                HeadWord head, Clock clock);
  ~PublisherCore() override;

  [[nodiscard]] const KeyExpression& key() const noexcept { return key_; }
  [[nodiscard]] std::uint32_t entity() const noexcept { return entity_; }
  [[nodiscard]] const PublisherOptions& options() const noexcept { return options_; }

  /// The deadline of a publish() without one, for its wait for readers.
  [[nodiscard]] Deadline default_deadline() const {
    return options_.qos.overflow == Overflow::block ? Deadline(options_.block_for)
                                                    : Deadline::now();
  }
  using GoOn = SignalledPublish::GoOn;  // null: only the deadline ends a wait
  /// Without a deadline: default_deadline(), and for the GPU PublisherOptions::block_for.
  [[nodiscard]] Result<Published> publish(const TensorDict& sample,
                                          std::optional<Deadline> deadline, const OnStream& on = {},
                                          const GoOn& go_on = nullptr);
  [[nodiscard]] Result<Published> publish(Bytes sample, Deadline deadline,
                                          const GoOn& go_on = nullptr);
  [[nodiscard]] Result<Loan> loan(const std::shared_ptr<const Schema>& schema,
                                  const LoanOptions& options, Deadline deadline);
  /// The deadline as for a TensorDict.
  [[nodiscard]] Result<Published> publish(Loan&& sample, std::optional<Deadline> deadline,
                                          const OnStream& on = {}, const GoOn& go_on = nullptr);
  [[nodiscard]] Result<void> wait_for_subscribers(std::size_t count, Deadline deadline);
  [[nodiscard]] bool forked() const noexcept { return context_.forked(); }
  [[nodiscard]] PublisherStats stats() const;
  [[nodiscard]] Result<void> close(Deadline deadline);
  /// close() within ContextOptions::linger: the remaining samples are logged.
  void end();

  // EntityDoor
  [[nodiscard]] Result<std::shared_ptr<MessageSink>> on_open(const std::shared_ptr<Link>& link,
                                                             const Descriptor& open,
                                                             Bytes said) override;
  /// Called by a subscription, under its link's receive lock.
  void took(Subscription& subscription);
  enum class Parting : std::uint8_t { in_order, lost };
  void ended(Subscription& subscription, Parting parting);
  // HeadSource
  [[nodiscard]] std::size_t say_head() override;
  // Timed
  void on_time() override;

 private:
  /// open -> closing   it publishes no more, and only readers that return are let in
  ///      -> closed
  enum class State : std::uint8_t { open, closing, closed };
  /// Whether readers with lost links are awaited.
  enum class Lost : std::uint8_t { waited_for, ignored };

  [[nodiscard]] Result<void> usable(std::string_view where) const;
  [[nodiscard]] Result<void> close(Deadline deadline, Lost lost);
  [[nodiscard]] Result<void> admits(const ContextId& reader) TENDON_REQUIRES(mutex_);
  void let_go(LostReaders::Links links);
  void show_head_page(Subscription& subscription) TENDON_REQUIRES(mutex_);
  void note_behind();
  [[nodiscard]] Result<void> check(const Schema& schema) const;
  [[nodiscard]] Result<std::shared_ptr<KeptSample>> make_room(SharedMessage message);
  [[nodiscard]] Result<Published> publish(std::shared_ptr<KeptSample> sample, Deadline deadline,
                                          const GoOn& go_on);
  [[nodiscard]] bool wait_for_laggards(std::uint64_t sequence, Deadline deadline,
                                       const GoOn& go_on);
  void prefault_soon(std::uint64_t size_bytes);
  /// When memory is short, samples before `kept_from` are dropped.
  [[nodiscard]] Result<std::shared_ptr<const PublishedSlot>> acquire(
      std::uint64_t size_bytes, std::uint64_t kept_from = ~std::uint64_t{0});
  void show_what_can_be();
  void show(Subscription& subscription, Fanout::Round& round) TENDON_REQUIRES(mutex_);
  void note_dropped(Subscription& subscription, Fanout::Round& round) TENDON_REQUIRES(mutex_);
  void take_back(Subscription::Position& position) TENDON_REQUIRES(mutex_);
  [[nodiscard]] LentSample::Keeps keeps(const Subscription& subscription) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool has_share(const Subscription& subscription, const SharedMessage& sample) const
      TENDON_REQUIRES(mutex_);
  /// Subscriptions for which nobody waits any more: name, and why.
  using Excused = std::pair<std::string, std::string_view>;
  [[nodiscard]] std::vector<Excused> excuse(Published& published);
  void tell(Published& published) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::vector<std::string> behind(std::uint64_t sequence) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool all_shown(std::uint64_t sequence) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool is_idle() TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::vector<std::string> unsent() TENDON_REQUIRES(mutex_);
  void give_up(Subscription& subscription, const Error& why) TENDON_REQUIRES(mutex_);
  void remove(Subscription& subscription) TENDON_REQUIRES(mutex_);
  void detach_soon(Subscription& subscription);
  void detach(const Subscription& subscription);

  const std::shared_ptr<NodePort> node_;
  const std::shared_ptr<Entities> entities_;
  ContextCore& context_;
  const KeyExpression key_;
  const PublisherOptions options_;
  const Clock clock_;
  const std::uint32_t entity_;
  const HeadWord head_;
  mutable Mutex mutex_;
  SampleHistory history_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Subscription>> subscriptions_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Subscription>> leaving_ TENDON_GUARDED_BY(mutex_);  // over, still
                                                                                  // attached
  LostReaders lost_ TENDON_GUARDED_BY(mutex_);
  PublisherStats counted_ TENDON_GUARDED_BY(mutex_);  // trimmed and thinned samples
  // Samples that were sent as copies, counted by channels.
  const std::shared_ptr<std::atomic<std::uint64_t>> copied_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::shared_ptr<Fanout> sender_;
  GpuSamples from_gpus_;
  PlainService plain_;
  std::atomic<State> state_{State::open};
  std::atomic<bool> noted_behind_{false};  // with the HeadTeller
};

}  // namespace tendon::v0::detail
