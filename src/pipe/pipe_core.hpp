// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/pipe/pipe.hpp>
#include <vector>

#include "channel/channel.hpp"
#include "pipe/pipe_end.hpp"
#include "pipe/pipe_messages.hpp"
#include "pipe/pipe_receiver.hpp"
#include "pipe/pipe_sender.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

template <class T>
class RecvCompletion;

/// One end of a pipe, shared by the user's handle, the link and pending operations: it owns the two
/// halves and dispatches their events.
///
/// Owns:    the halves, a share of the Context and of the link.
/// Threads: thread-safe. Lock order: the link's receive lock before the sender's.
/// Errors:  those of the halves.
/// Blocks:  calls with a deadline, until it passes.
/// Cost:    that of the halves.
class PipeCore final : public ChannelEvents,
                       public Work,
                       public std::enable_shared_from_this<PipeCore> {
 public:
  PipeCore(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t id,
           const PipeWindows& windows);
  ~PipeCore() override;

  [[nodiscard]] static Result<std::shared_ptr<PipeCore>> connect(
      std::shared_ptr<ContextCore> context, std::string_view address, const ConnectOptions& options,
      Deadline deadline);
  [[nodiscard]] static const std::shared_ptr<PipeCore>& core_of(const Pipe& pipe) {
    return pipe.core_;
  }
  /// Takes the core out of a handle, which will not say the end of the pipe.
  [[nodiscard]] static std::shared_ptr<PipeCore> take_core(Pipe pipe) {
    return std::move(pipe.core_);
  }
  [[nodiscard]] static Pipe make_pipe(std::shared_ptr<PipeCore> core) {
    return Pipe(std::move(core));
  }

  [[nodiscard]] PipeSender& sender() noexcept { return sender_; }
  [[nodiscard]] PipeReceiver& receiver() noexcept { return receiver_; }
  Completion<void> send_async(TensorDict batch, const SendOptions& options);
  Completion<void> send_async(Loan&& loan, const SendOptions& options);
  Completion<void> send_async(std::shared_ptr<const KeptBody> kept);
  Completion<void> send_async(Storage bytes, const MessageOptions& options);
  Completion<TensorDict> recv_async(const RecvOptions& options);
  Completion<TensorDict> recv_into_async(TensorDict destination);
  Completion<Message> recv_message_async();

  Result<void> close(Deadline deadline);
  void cancel();
  void cancel(const Error& reason);
  /// Called when the user's handle is dropped: the Context keeps unsent messages, then the end is
  /// said.
  void abandon();
  /// Keeps the pipe alive after its handle is dropped, until release(): a server may still have to
  /// state a reason.
  void supervise() noexcept { end_.handle.supervise(); }
  void release();
  [[nodiscard]] const Link& link() const noexcept { return *end_.link; }
  /// True if its end has arrived, so everything that the peer sent is here. The link's receive lock
  /// is held.
  [[nodiscard]] bool ended_by_peer() const noexcept {
    channel_.receive_mutex().assert_held();
    return channel_.said_end().has_value();
  }
  [[nodiscard]] std::uint64_t left_bytes() const noexcept { return receiver_.left_bytes(); }
  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept {
    return end_.context;
  }
  [[nodiscard]] PipeStats stats() const;

  [[nodiscard]] std::shared_ptr<MessageSink> sink() {
    return Channel::sink_of(shared_from_this(), channel_);
  }

  // ChannelEvents
  void on_peer_gone(Channel::State how, const Error& why) override;
  void on_end_said(const Descriptor& end) override;
  bool claim_destination(const Descriptor& descriptor,
                         std::vector<MutableBytes>& destination) override {
    return receiver_.claim(descriptor, destination);
  }
  void on_transfer_ended(const Transfer& transfer) override {
    receiver_.on_transfer_ended(transfer);
  }
  // Work
  bool progress() override;
  [[nodiscard]] bool has_input() const noexcept override {
    return end_.filled->load() || end_.delivered->load();
  }
  [[nodiscard]] Unsent unsent() const override {
    const std::size_t count = sender_.queued_count();
    return count == 0 ? Unsent{} : Unsent{end_.link->peer_name(), end_.link->peer().context, count};
  }

  // Asynchronous operations: see async_ops.hpp
  void drive(CompletionBase& completion, Deadline deadline);
  void cancel_send(const CompletionBase* completion) { sender_.cancel(completion); }
  bool cancel_recv(const CompletionBase* completion) {
    return receiver_.posted().cancel(completion);
  }
  void put_back(PutBack returned) { receiver_.put_back(std::move(returned)); }

 private:
  Completion<void> enqueue(std::shared_ptr<QueuedSend> queued, Result<void> prepared);
  template <class T>
  Completion<T> post_recv(std::shared_ptr<RecvCompletion<T>> completion,
                          std::shared_ptr<PostedRecv> posted);
  void work_on();
  void send_on();
  void end_now(const Descriptor& said, Bytes text);
  void post_end();
  void detach();

  PipeEnd end_;
  PipeSender sender_;
  Channel channel_;
  PipeReceiver receiver_;
  std::atomic<bool> working_{false};  // registered with the Context as Work
};

}  // namespace tendon::v0::detail
