// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/pipe.hpp>

#include "channel/sender.hpp"
#include "pipe/copied_sends.hpp"
#include "pipe/pipe_end.hpp"
#include "pipe/pipe_messages.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {

struct GpuSource;
struct KeptBody;
struct QueuedSend;

/// The sending half of a pipe. Messages are prepared, wait for room in the window and for slots,
/// and are handed to the link; asynchronous sends wait in a queue.
///
/// Owns:    queued messages, and all their parts.
/// Threads: thread-safe; a second blocking send at a time returns `busy`. Lock order: the link's
///          receive lock before its own.
/// Errors:  why the direction has ended; `timeout`, `resource_exhausted`, `message_too_large`.
/// Blocks:  send(), loan(), flush(): until the deadline.
/// Cost:    one lock for each send, and the work of the link.
class PipeSender {
 public:
  /// `go_on` sends queued messages, now or as soon as there is room.
  PipeSender(PipeEnd& end, Window window, std::function<void()> go_on);
  ~PipeSender();

  Result<void> send(const TensorDict& batch, const SendOptions& options, Deadline deadline);
  Result<void> send(Loan&& loan, const SendOptions& options, Deadline deadline);
  Result<void> send(Bytes bytes, const MessageOptions& options, Deadline deadline);
  /// `beside_bytes`: room behind the tensors.
  Result<Loan> loan(const std::shared_ptr<const Schema>& schema, Deadline deadline,
                    std::uint64_t beside_bytes = 0);
  Result<Loan> loan(const std::shared_ptr<const Schema>& schema, const LoanOptions& options,
                    Deadline deadline);
  Result<void> flush(Deadline deadline);
  Result<void> finish(Deadline deadline);
  /// Says the end; with `of_both` also that nothing will be taken any more.
  enum class End : std::uint32_t { of_sending = 0, of_both = 1 };
  void post_end(End what);

  // Asynchronous: prepared here, then queue()d with a completion
  Result<void> prepare(QueuedSend& queued, TensorDict batch, const SendOptions& options);
  Result<void> prepare(QueuedSend& queued, Loan&& loan, const SendOptions& options);
  Result<void> prepare(QueuedSend& queued, std::shared_ptr<const KeptBody> kept);
  Result<void> prepare(QueuedSend& queued, Storage bytes, const MessageOptions& options);
  Result<void> queue(std::shared_ptr<QueuedSend> queued);
  void cancel(const CompletionBase* completion);
  /// Sends as much of the queue as can leave. True while something is left.
  bool progress() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t queued_count() const noexcept { return queued_count_.load(); }
  /// True if a send is queued, or a GPU copies one.
  [[nodiscard]] bool is_at_work() const noexcept {
    return queued_count() != 0 || !copied_.is_empty();
  }

  /// For words of the receiver: credits and acks. The link's receive lock is held.
  [[nodiscard]] SendWindow& window() noexcept { return window_; }
  void add_to(PipeStats& stats) const TENDON_EXCLUDES(mutex_);

 private:
  Result<void> usable(std::string_view where) const;
  /// The place of a batch's leaves. A batch with some on a GPU is not prepared: it is staged first.
  enum class Lies : std::uint8_t { on_cpu, on_gpu };
  Result<Lies> prepare(Outgoing& out, const TensorDict& batch) TENDON_EXCLUDES(mutex_);
  Result<void> send_from_gpu(const TensorDict& batch, const SendOptions& options, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  Result<void> send_staged(const TensorDict& batch, const GpuSource& source,
                           const SendOptions& options, Deadline deadline) TENDON_EXCLUDES(mutex_);
  Result<void> stage(QueuedSend& queued, const SendOptions& options, GpuSource source);
  Result<void> prepare_bytes(Outgoing& out, Bytes bytes, const MessageOptions& options);
  Result<void> prepare_loan(Outgoing& out, const TensorDict& dict,
                            const std::shared_ptr<LoanedSlot>& slot) TENDON_EXCLUDES(mutex_);
  static Result<void> check_loan(const Loan& loan, const Link& link);
  /// Announces the schema of `out` unless the peer knows it. False: not now.
  Result<bool> announce(Outgoing& out, Deadline deadline) TENDON_REQUIRES(mutex_);
  Result<void> keep(Outgoing& out) TENDON_REQUIRES(mutex_);
  Result<bool> try_send(Outgoing& out, Deadline deadline) TENDON_REQUIRES(mutex_);
  Result<Sent> send_published(SendOp& op, Deadline deadline) TENDON_REQUIRES(mutex_);
  Result<void> send_now(Outgoing& out, Deadline deadline) TENDON_EXCLUDES(mutex_);
  Result<void> give_up(Outgoing& out, std::optional<Error> error) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool take_back(Outgoing& out) TENDON_REQUIRES(mutex_);
  void count_announced(Outgoing& out) TENDON_REQUIRES(mutex_);
  void count_sent(const Outgoing& out) TENDON_REQUIRES(mutex_);
  void prepare_next(Outgoing& out) TENDON_REQUIRES(mutex_);
  Error why_blocked(const Outgoing& out, const Error* timeout) const TENDON_REQUIRES(mutex_);

  PipeEnd& end_;
  const std::function<void()> go_on_;
  ContextCore& context_;
  Link& link_;
  SendWindow window_;
  std::atomic<bool> user_sending_{false};
  Outgoing scratch_;  // for blocking sends: user_sending_ guards it. Its vectors are reused
  mutable Mutex mutex_;
  ChannelSender sender_ TENDON_GUARDED_BY(mutex_);
  // It has drawn numbers for itself or its schema, which no other may use meanwhile.
  const Outgoing* begun_ TENDON_GUARDED_BY(mutex_) = nullptr;
  std::deque<std::shared_ptr<QueuedSend>> queue_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::size_t> queued_count_{0};  // changed under the lock
  CopiedSends copied_;                        // changed under the lock
  // Set while a queued send waits for a slot.
  std::optional<WaitsFor> queue_waits_ TENDON_GUARDED_BY(mutex_);
  PipeStats stats_ TENDON_GUARDED_BY(mutex_);
  // Counts copies from a GPU.
  std::atomic<std::uint64_t> copies_d2h_{0};
  std::atomic<std::uint64_t> bytes_d2h_{0};
};

/// Returns the error of sending so large a batch, before anything is copied.
[[nodiscard]] Result<void> check_size(const TensorDict& batch, const Link& link);

}  // namespace tendon::v0::detail
