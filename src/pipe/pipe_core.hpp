// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/pipe.hpp>
#include <variant>
#include <vector>

#include "pipe/busy.hpp"
#include "pipe/inbox.hpp"
#include "pipe/pipe_messages.hpp"
#include "pipe/schema_table.hpp"
#include "pipe/window.hpp"
#include "runtime/engine.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// One end of a pipe, shared by the user's handle, the link and pending operations.
///
/// Lock order: the link's receive lock before send_mutex_. The state machine of each direction:
/// open -> finished (end sent or read), or open -> ended with an error; see docs/threads.md.
class PipeCore final : public MessageSink,
                       public Work,
                       public std::enable_shared_from_this<PipeCore> {
 public:
  PipeCore(std::shared_ptr<Engine> engine, std::shared_ptr<Link> link, std::uint32_t id);
  ~PipeCore() override;

  [[nodiscard]] static Result<std::shared_ptr<PipeCore>> connect(std::shared_ptr<Engine> engine,
                                                                 std::string_view address,
                                                                 Profile profile,
                                                                 Deadline deadline);
  [[nodiscard]] static const std::shared_ptr<PipeCore>& core_of(const Pipe& pipe) {
    return pipe.core_;
  }
  /// Out of a handle that will not say the end of the pipe.
  [[nodiscard]] static std::shared_ptr<PipeCore> take_core(Pipe pipe) {
    return std::move(pipe.core_);
  }
  [[nodiscard]] static Pipe make_pipe(std::shared_ptr<PipeCore> core) {
    return Pipe(std::move(core));
  }

  // Sending (pipe_send.cpp)
  Result<void> send(const TensorDict& batch, Deadline deadline);
  Result<void> send(Loan&& loan, Deadline deadline);
  Result<void> send(Bytes bytes, const MessageOptions& options, Deadline deadline);
  Completion<void> send_async(TensorDict batch);
  Completion<void> send_async(Loan&& loan);
  Completion<void> send_async(Storage bytes, const MessageOptions& options);
  Result<Loan> loan(const std::shared_ptr<const Schema>& schema, Deadline deadline);
  Result<void> flush(Deadline deadline);
  Result<void> finish_sending(Deadline deadline);

  // Receiving (pipe_receive.cpp)
  Result<TensorDict> recv(RecvMode mode, Deadline deadline);
  Result<void> recv_into(TensorDict& destination, Deadline deadline);
  Result<Message> recv_message(Deadline deadline);
  Completion<TensorDict> recv_async();
  Completion<TensorDict> recv_into_async(TensorDict destination);
  Completion<Message> recv_message_async();

  // Life (pipe_core.cpp)
  Result<void> close(Deadline deadline);
  void cancel();
  void cancel(const Error& reason);
  /// The user's handle is gone: unsent messages stay with the engine, then the end is said.
  void abandon();
  /// Until release(), a dropped handle does not end the pipe: a server may still have a reason to
  /// give.
  void supervise();
  void release();
  [[nodiscard]] const Link& link() const noexcept { return *link_; }
  /// Its end has come, so that everything the peer sent is here. The link's receive lock is held.
  [[nodiscard]] bool ended_by_peer() const noexcept {
    link_->receive_mutex().assert_held();
    return end_came_;
  }
  /// Payload in the inbox.
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept {
    return waiting_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] const std::shared_ptr<Engine>& engine() const noexcept { return engine_; }
  [[nodiscard]] PipeStats stats() const;

  // MessageSink
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor& descriptor,
                         std::vector<MutableBytes>& destination) override;
  bool admits(const Descriptor& descriptor) override;
  void on_transfer_ended(const Transfer& transfer) override;
  void on_link_failed(const Error& error) override;
  // Work
  bool progress() override;
  [[nodiscard]] Unsent unsent() const override {
    const std::size_t count = queued_count_.load();
    return count == 0 ? Unsent{} : Unsent{link_->peer_name(), count};
  }

  // Asynchronous operations: see async_ops.hpp
  struct QueuedSend;
  struct PostedRecv;
  class SendCompletion;
  template <class T>
  class RecvCompletion;
  class IntoCompletion;
  void drive(CompletionBase& completion, Deadline deadline);
  void cancel_send(const CompletionBase* completion);
  bool cancel_recv(const CompletionBase* completion);
  void put_back(PutBack returned);

 private:
  enum class Want : std::uint8_t { tensors, any };
  enum class Head : std::uint8_t { nothing, message, over };

  // Sending
  Result<void> usable_for_send(std::string_view where) const;
  Result<void> prepare(Outgoing& out, const TensorDict& batch) TENDON_EXCLUDES(send_mutex_);
  Result<void> prepare_values(Outgoing& out, const TensorDict& batch);
  Result<void> prepare_bytes(Outgoing& out, Bytes bytes, const MessageOptions& options);
  Result<void> check_size(const Descriptor& descriptor) const;
  std::uint32_t schema_number(Outgoing& out) TENDON_REQUIRES(send_mutex_);
  [[nodiscard]] bool window_open(std::uint64_t payload_bytes) const TENDON_REQUIRES(send_mutex_);
  Result<bool> try_send(Outgoing& out, Deadline deadline) TENDON_REQUIRES(send_mutex_);
  Result<void> send_now(Outgoing& out, Deadline deadline);
  Result<void> prepare_loan(Outgoing& out, const TensorDict& dict,
                            const std::shared_ptr<SlotLease>& lease) TENDON_EXCLUDES(send_mutex_);
  Result<void> check_loan(const Loan& loan) const;
  [[nodiscard]] bool take_back(Outgoing& out) TENDON_REQUIRES(send_mutex_);
  void count_announced(Outgoing& out) TENDON_REQUIRES(send_mutex_);
  void count_sent(const Outgoing& out) TENDON_REQUIRES(send_mutex_);
  [[nodiscard]] std::uint64_t untaken_messages() const TENDON_REQUIRES(send_mutex_);
  Error busy_error(std::string_view what) const;
  Error why_blocked(const Outgoing& out, const Error* timeout) const TENDON_REQUIRES(send_mutex_);
  bool progress_sends() TENDON_EXCLUDES(send_mutex_);
  Completion<void> enqueue(std::shared_ptr<QueuedSend> queued, Result<void> prepared);
  void post_end(bool reading_too);
  void end_now(Descriptor said, Bytes text);
  void detach();

  // Receiving
  Head look() TENDON_REQUIRES(link_->receive_mutex());
  Result<void> check_take(Want want, RecvMode mode, const TensorDict* destination, bool& lent)
      TENDON_REQUIRES(link_->receive_mutex());
  void take(RecvMode mode, const TensorDict* destination, bool lent, Taken& taken)
      TENDON_REQUIRES(link_->receive_mutex());
  void drop_claim() TENDON_REQUIRES(link_->receive_mutex());
  bool keep_claim(const TensorDict& destination) TENDON_REQUIRES(link_->receive_mutex());
  bool destination_free(const TensorDict* destination) TENDON_REQUIRES(link_->receive_mutex());
  void clear_inbox() TENDON_REQUIRES(link_->receive_mutex());
  void set_waiting_bytes(std::uint64_t bytes) noexcept TENDON_REQUIRES(link_->receive_mutex()) {
    waiting_bytes_.store(bytes, std::memory_order_relaxed);
  }
  Descriptor due_credit() TENDON_REQUIRES(link_->receive_mutex());
  Error over() const TENDON_REQUIRES(link_->receive_mutex());
  Result<void> read_schema(Incoming& incoming) TENDON_REQUIRES(link_->receive_mutex());
  void fail_here(Error error) TENDON_REQUIRES(link_->receive_mutex());
  Result<void> same_schema(const TensorDict& destination, const Schema* schema) const;
  Error wrong_kind() const;
  Result<bool> try_take(Want want, RecvMode mode, const TensorDict* destination, Taken& taken);
  Result<void> wait_take(Want want, RecvMode mode, const TensorDict* destination, Deadline deadline,
                         std::string_view where, Taken& taken);
  Result<void> check_schema(const Taken& taken) const;
  Result<Message> to_message(Taken taken);
  Result<TensorDict> to_tensors(Taken& taken);
  Result<void> fill(Taken& taken, TensorDict& destination, Deadline deadline);
  Result<void> copy_into(Taken& taken, TensorDict& destination, Deadline deadline);
  Error keep_for_later(const Taken& taken, TensorDict tensors, std::uint64_t copied_bytes);
  Result<std::shared_ptr<const Value>> read_values(const Taken& taken);
  bool progress_receives() TENDON_EXCLUDES(link_->receive_mutex());
  /// The completion may be dropped, which leads to put_back().
  void complete(PostedRecv& posted, std::optional<Taken> taken, std::optional<Error> error,
                CompletionStatus failed_as = CompletionStatus::failed)
      TENDON_EXCLUDES(link_->receive_mutex());
  template <class T>
  Completion<T> post_recv(std::shared_ptr<RecvCompletion<T>> completion,
                          std::optional<TensorDict> destination);

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Link> link_;
  const std::uint32_t id_;
  std::atomic<bool> user_sending_{false};
  std::atomic<bool> user_receiving_{false};
  std::atomic<bool> working_{false};  // registered with the engine as Work
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> supervised_{false};
  std::atomic<bool> dropped_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> finished_sending_{false};
  std::atomic<std::uint64_t> waits_{0};

  // Written by the receiving side, read by senders.
  std::atomic<std::uint64_t> peer_took_messages_{0};
  std::atomic<std::uint64_t> peer_took_bytes_{0};
  std::atomic<std::uint64_t> acked_sequence_{0};
  std::atomic<bool> send_ended_{false};  // send_error_ says why
  mutable Mutex error_mutex_;
  std::optional<Error> send_error_ TENDON_GUARDED_BY(error_mutex_);
  /// The reason the peer ended the pipe with.
  std::optional<Error> peer_error_ TENDON_GUARDED_BY(error_mutex_);

  // Sending
  mutable Mutex send_mutex_;
  // For blocking sends: user_sending_ guards it. Its vectors are used again.
  Outgoing scratch_;
  std::uint64_t next_sequence_ TENDON_GUARDED_BY(send_mutex_) = 1;
  std::uint64_t window_messages_ TENDON_GUARDED_BY(send_mutex_) = 0;  // sent so far
  std::uint64_t window_bytes_ TENDON_GUARDED_BY(send_mutex_) = 0;
  // Queued sends count among link_->waiting_for_returns.
  bool waits_announced_ TENDON_GUARDED_BY(send_mutex_) = false;
  SchemaTable announced_ TENDON_GUARDED_BY(send_mutex_);
  std::deque<std::shared_ptr<QueuedSend>> queue_ TENDON_GUARDED_BY(send_mutex_);
  std::atomic<std::size_t> queued_count_{0};
  PipeStats send_stats_ TENDON_GUARDED_BY(send_mutex_);

  // Receiving
  Inbox inbox_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::deque<PutBack> put_back_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::deque<std::shared_ptr<PostedRecv>> posted_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::atomic<std::size_t> posted_count_{0};
  SchemaTable received_schemas_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::uint64_t last_sequence_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
  std::uint64_t taken_messages_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
  std::uint64_t taken_bytes_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
  std::uint64_t credited_messages_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
  std::uint64_t credited_bytes_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
  std::atomic<std::uint64_t> waiting_bytes_{0};  // changed under the receive lock alone
  bool end_came_ TENDON_GUARDED_BY(link_->receive_mutex()) = false;  // maybe behind messages
  bool end_read_ TENDON_GUARDED_BY(link_->receive_mutex()) = false;
  std::optional<Error> receive_error_ TENDON_GUARDED_BY(link_->receive_mutex());
  // Where a waiting recv_into wants its payload; what is written there, or was and is not taken.
  TensorDict* into_ TENDON_GUARDED_BY(link_->receive_mutex()) = nullptr;
  bool claim_open_ TENDON_GUARDED_BY(link_->receive_mutex()) = false;
  const TensorDict* claimer_ TENDON_GUARDED_BY(link_->receive_mutex()) = nullptr;
  // That memory, once the receive has given up.
  std::optional<TensorDict> claimed_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::array<std::byte, kLeafAlignmentBytes> gap_{};  // padding between leaves is read into it
  PipeStats receive_stats_ TENDON_GUARDED_BY(link_->receive_mutex());
};

}  // namespace tendon::v0::detail
