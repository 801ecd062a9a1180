// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/pipe/pipe.hpp>
#include <variant>
#include <vector>

#include "pipe/busy.hpp"
#include "pipe/inbox.hpp"
#include "pipe/pipe_messages.hpp"
#include "pipe/window.hpp"
#include "runtime/engine.hpp"
#include "transport/link.hpp"

namespace tendon::inline v0::detail {

/// One end of a pipe, shared by the user's handle, the link and pending operations.
///
/// Receiving state is guarded by the link's receive lock, sending state by send_mutex_ (after the
/// former, where both are held). The state machine of each direction: open -> finished (end sent or
/// read), or open -> ended with an error; see docs/threads.md.
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
  [[nodiscard]] const std::shared_ptr<Engine>& engine() const noexcept { return engine_; }
  [[nodiscard]] PipeStats stats() const;

  // MessageSink; the link's receive lock is held
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
  Result<void> prepare(Outgoing& out, const TensorDict& batch);
  Result<void> prepare_values(Outgoing& out, const TensorDict& batch);
  Result<void> prepare_bytes(Outgoing& out, Bytes bytes, const MessageOptions& options);
  Result<void> check_size(const Descriptor& descriptor) const;
  std::uint32_t schema_number(Outgoing& out);
  [[nodiscard]] bool window_open(std::uint64_t payload_bytes) const;
  Result<bool> try_send(Outgoing& out, Deadline deadline);
  Result<void> send_now(Outgoing& out, Deadline deadline);
  Result<void> prepare_loan(Outgoing& out, const TensorDict& dict,
                            const std::shared_ptr<SlotLease>& lease);
  Result<void> prepare_locked(Outgoing& out, const TensorDict& batch);
  Result<void> check_loan(const Loan& loan) const;
  [[nodiscard]] bool take_back(Outgoing& out);
  void count_announced(Outgoing& out);
  void count_sent(const Outgoing& out);
  [[nodiscard]] std::uint64_t untaken_messages() const;
  Error busy_error(std::string_view what) const;
  Error why_blocked(const Outgoing& out, const Error* timeout) const;
  bool progress_sends();
  Completion<void> enqueue(std::shared_ptr<QueuedSend> queued, Result<void> prepared);
  void post_end(bool reading_too);
  void end_now(Descriptor said, Bytes text);
  void detach();

  // Receiving; the link's receive lock is held for those marked *
  Head look();  // *
  Result<void> check_take(Want want, RecvMode mode, const TensorDict* destination,
                          bool& lent);                                               // *
  void take(RecvMode mode, const TensorDict* destination, bool lent, Taken& taken);  // *
  void drop_claim();                                                                 // *
  bool keep_claim(const TensorDict& destination);                                    // *
  bool destination_free(const TensorDict* destination);                              // *
  void clear_inbox();                                                                // *
  Descriptor due_credit();                                                           // *
  Error over() const;                                                                // *
  Result<void> read_schema(Incoming& incoming);                                      // *
  void fail_here(Error error);                                                       // *
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
  Error keep_for_later(TensorDict tensors, std::uint64_t copied_bytes);
  Result<std::shared_ptr<const Value>> read_values(const Taken& taken);
  bool progress_receives();
  void complete(PostedRecv& posted, std::optional<Taken> taken, std::optional<Error> error,
                CompletionStatus failed_as = CompletionStatus::failed);
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
  mutable std::mutex error_mutex_;
  std::optional<Error> send_error_;

  // Sending
  mutable std::mutex send_mutex_;
  Outgoing scratch_;  // for blocking sends, its vectors are used again
  std::uint64_t next_sequence_ = 1;
  std::uint64_t window_messages_ = 0;  // sent so far
  std::uint64_t window_bytes_ = 0;
  bool waits_announced_ = false;  // queued sends count among link_->waiting_for_returns
  struct Announced {
    std::shared_ptr<const Schema> schema;
    std::uint32_t number = 0;
  };
  static constexpr std::size_t kSchemasKept = 64;
  std::array<Announced, kSchemasKept> announced_;
  std::uint32_t last_schema_ = 0;  // number of the latest announced, 0: none
  std::deque<std::shared_ptr<QueuedSend>> queue_;
  std::atomic<std::size_t> queued_count_{0};
  PipeStats send_stats_;

  // Receiving
  Inbox inbox_;
  std::deque<PutBack> put_back_;
  std::deque<std::shared_ptr<PostedRecv>> posted_;
  std::atomic<std::size_t> posted_count_{0};
  std::array<Announced, kSchemasKept> received_schemas_;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t taken_messages_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t credited_messages_ = 0;
  std::uint64_t credited_bytes_ = 0;
  std::uint64_t waiting_bytes_ = 0;  // payload in the inbox
  bool end_read_ = false;
  std::optional<Error> receive_error_;
  std::optional<Error> peer_error_;  // the reason the peer ended the pipe with
  TensorDict* into_ = nullptr;       // where a waiting recv_into wants its payload
  // A message is being written to memory of a receive (`claimer_`), or was and was not taken yet.
  bool claim_open_ = false;
  const TensorDict* claimer_ = nullptr;
  std::optional<TensorDict> claimed_;                 // that memory, once the receive has given up
  std::array<std::byte, kLeafAlignmentBytes> gap_{};  // padding between leaves is read into it
  PipeStats receive_stats_;
};

}  // namespace tendon::inline v0::detail
