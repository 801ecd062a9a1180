// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <stop_token>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/responder.hpp>
#include <vector>

#include "core/thread.hpp"
#include "fabric/calls/call_channel.hpp"
#include "fabric/ports/entities.hpp"
#include "fabric/ports/node_port.hpp"

namespace tendon::v0::detail {

/// A request at a responder.
struct ResponderJob {
  std::shared_ptr<CallChannel> channel;
  CallChannel::Received received;
  Deadline deadline;
  std::stop_source stop;
};

/// The requests of a responder, and the threads that answer them.
///
///   waiting -> running -> answered, failed, cancelled
///           -> cancelled
///
/// The responder is open, then closed, then joining or handed_over. In a handler of its own end()
/// cannot join the thread on which it runs. It then hands over to the last of the threads, which
/// share the responder, and returns.
///
/// Owns:    threads, made when needed and joined in end(), or by the last of them; requests; a
///          channel for each caller.
/// Threads: thread-safe. Its lock is taken after a link's receive lock; no channel is called under
///          it.
/// Errors:  as Responder.
/// Blocks:  close() until the deadline, end() while handlers run; in a handler neither.
/// Cost:    for each request: two locks, a walk over those that are there, and waking a thread.
class ResponderCore final : public EntityDoor,
                            public CallChannel::Side,
                            public std::enable_shared_from_this<ResponderCore> {
 public:
  /// Makes a responder that `node` announces.
  [[nodiscard]] static Result<std::shared_ptr<ResponderCore>> create(
      std::shared_ptr<NodePort> node, KeyExpression key, Responder::Handler handler,
      const ResponderOptions& options);
  ResponderCore(std::shared_ptr<NodePort> node, KeyExpression key, Responder::Handler handler,
                const ResponderOptions& options);

  [[nodiscard]] const KeyExpression& key() const noexcept { return key_; }
  [[nodiscard]] std::uint32_t entity() const noexcept { return entity_; }
  [[nodiscard]] bool forked() const noexcept { return context_.forked(); }
  [[nodiscard]] ResponderStats stats() const;
  [[nodiscard]] Result<void> close(Deadline deadline);
  /// Stops handlers and joins their threads.
  void end();

  // EntityDoor
  [[nodiscard]] Result<std::shared_ptr<MessageSink>> on_open(const std::shared_ptr<Link>& link,
                                                             const Descriptor& open,
                                                             Bytes said) override;
  // CallChannel::Side
  void on_received(CallChannel& channel, CallChannel::Received&& received) override;
  void on_cancelled(CallChannel& channel, std::uint64_t id) override;
  void on_unsent(CallChannel& channel, const CallWord& word, const Error& why) override;
  void on_over(CallChannel& channel, const Error& why) override;

 private:
  using Job = ResponderJob;
  using Jobs = std::vector<std::shared_ptr<Job>>;

  enum class Admitted : std::uint8_t { yes, full, caller_has_its_share, no_thread, closed };
  [[nodiscard]] Error was_closed() const;
  [[nodiscard]] EntityAnnouncement announcement() const;
  [[nodiscard]] Admitted admit(const std::shared_ptr<Job>& job);
  /// The most requests of one link: half of all places, so one caller keeps no other out.
  [[nodiscard]] std::size_t places_of_caller() const;
  [[nodiscard]] bool has_thread() TENDON_REQUIRES(mutex_);
  void work();
  /// True if this thread is one of its own.
  [[nodiscard]] bool is_handler() const noexcept { return serves_ == this; }
  void leave() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::shared_ptr<Job> next_job();
  void answer(Job& job);
  [[nodiscard]] Result<TensorDict> run(const Request& request) const;
  void send(CallChannel& channel, std::uint64_t id, const TensorDict& answer);
  void refuse(CallChannel& channel, std::uint64_t id, const Error& why);
  void send_cancelled(CallChannel& channel, std::uint64_t id);
  /// Removes the matching requests from the waiting ones.
  template <class F>
  [[nodiscard]] Jobs take_waiting(F is_meant);
  void stop_soon(std::vector<std::stop_source> stops);
  void stop_all();
  void stop_taking_requests();
  void close_channels(Deadline deadline);

  const std::shared_ptr<NodePort> node_;
  const std::shared_ptr<Entities> entities_;
  ContextCore& context_;
  const KeyExpression key_;
  const Responder::Handler handler_;
  const ResponderOptions options_;
  const std::uint32_t entity_;
  mutable Mutex mutex_;
  CondVar came_;  // a request or the end has arrived
  CondVar done_;  // with a request
  std::deque<std::shared_ptr<Job>> waiting_ TENDON_GUARDED_BY(mutex_);
  Jobs running_ TENDON_GUARDED_BY(mutex_);
  std::vector<Thread> threads_ TENDON_GUARDED_BY(mutex_);
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<CallChannel>> channels_ TENDON_GUARDED_BY(mutex_);
  ResponderStats stats_ TENDON_GUARDED_BY(mutex_);
  enum class State : std::uint8_t { open, closed, joining, handed_over };
  State state_ TENDON_GUARDED_BY(mutex_) = State::open;
  std::size_t left_count_ TENDON_GUARDED_BY(mutex_) = 0;  // threads that do no more work
  // The responder for which this thread works, and the request that it answers.
  static thread_local const ResponderCore* serves_;
  static thread_local const Job* answers_;
};

}  // namespace tendon::v0::detail
