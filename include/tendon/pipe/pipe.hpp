// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/pipe/message.hpp>
#include <tendon/pipe/path_of_device.hpp>
#include <tendon/pipe/pipe_options.hpp>
#include <tendon/pipe/pipe_stats.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/connect_options.hpp>
#include <tendon/session/path.hpp>
#include <tendon/tensor/loan.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
class PipeCore;
}

class PipeRange;

/// An ordered stream of TensorDicts and messages to and from one peer.
///
/// Example:
///   Pipe pipe = Pipe::connect(context, "127.0.0.1:7000", 5s).value();
///   TensorDict batch;
///   batch.set("image", Tensor::zeros(DType::u8, {32, 3, 224, 224}).value());
///   pipe.send(batch, 1s).value();
///   Result<TensorDict> answer = pipe.recv(10s);
///   if (!answer) std::cerr << answer.error().message() << '\n';  // timeout, peer_lost, ...
///   pipe.close(5s).value();  // the peer has everything that was sent
///
/// Owns:    its place on the link; received tensors outlive it.
/// Threads: one sender and one receiver at a time; a second of either gets `busy`.
/// Errors:  timeout (nothing was delivered, the pipe stays usable), end_of_stream (orderly),
///          peer_lost, cancelled, pipe_closed, context_closed, busy, forked, and those that the
///          calls below name; each names the peer.
/// Blocks:  calls with a Deadline, and each step of each(). The destructor never: it hands unsent
///          bytes to the Context.
/// Cost:    on a path `shm` a loan takes about a microsecond, whatever its size. send() copies the
///          tensors once, on the GPU if they lie on one that the peer reads. Other tensors on a GPU
///          travel through host memory, with one copy there and one back (device_paths()).
class TENDON_API Pipe {
 public:
  /// Connects to a Listener: "127.0.0.1:7000", "[::1]:7000", "host:7000", "unix:/path". Returns
  /// when the peer's Context answered, not when accept() took the pipe. Either side may start
  /// first: while nobody listens it dials until the deadline, then returns `unreachable` with the
  /// last cause. A deadline of zero is one try. It fails at once when the answer is not Tendon's.
  [[nodiscard]] static Result<Pipe> connect(Context& context, std::string_view address,
                                            Deadline deadline, const ConnectOptions& options = {});

  Pipe(Pipe&&) noexcept;
  Pipe& operator=(Pipe&&) noexcept;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe();

  // Sending. A call returns when its argument may be reused. The message may still be on its way
  // (see flush).
  /// Sends leaves that lie in host memory or, without gaps, on one GPU; else unsupported_device,
  /// device_lost, not_contiguous, not_direct. Only work that is queued later on `options.stream`
  /// may write leaves on a GPU again.
  [[nodiscard]] Result<void> send(const TensorDict& batch, Deadline deadline,
                                  const SendOptions& options = {});
  /// Consumes the loan only on success; wrong_link if it was taken from another link or another
  /// Context. A loan on a GPU is sent behind the work of `options.stream`, without a copy where the
  /// peer reads it there; else it is staged, as a batch would be.
  [[nodiscard]] Result<void> send(Loan&& loan, Deadline deadline, const SendOptions& options = {});
  [[nodiscard]] Result<void> send(Bytes bytes, const MessageOptions& options, Deadline deadline);
  /// Waits for no GPU. It is done when the message was sent and the GPU has copied it.
  [[nodiscard]] Completion<void> send_async(TensorDict batch, const SendOptions& options = {});
  [[nodiscard]] Completion<void> send_async(Loan&& loan, const SendOptions& options = {});
  /// The completion keeps the storage of `bytes` until it is done; the header is copied.
  [[nodiscard]] Completion<void> send_async(Storage bytes, const MessageOptions& options = {});

  /// Returns memory in which the peer can read, to be filled and sent. Waits until a slot is free;
  /// resource_exhausted (peer, slots, bytes) if none becomes free.
  [[nodiscard]] Result<Loan> loan(const std::shared_ptr<const Schema>& schema, Deadline deadline);
  /// Returns a loan on a GPU from the Context's pool there, which all peers share. Errors:
  /// resource_exhausted (bytes, and who holds most), message_too_large, unsupported_device,
  /// device_lost, not_supported where there is no driver.
  [[nodiscard]] Result<Loan> loan(const std::shared_ptr<const Schema>& schema,
                                  const LoanOptions& options, Deadline deadline);

  // Receiving: a received message belongs to the caller until released.
  [[nodiscard]] Result<TensorDict> recv(Deadline deadline) {
    return recv(RecvMode::view_or_copy, deadline);
  }
  /// wrong_kind if the next message is raw bytes; it stays for recv_message().
  [[nodiscard]] Result<TensorDict> recv(RecvMode mode, Deadline deadline) {
    return recv(RecvOptions{.mode = mode}, deadline);
  }
  /// unsupported_device if the message is wanted on a GPU that this process has not, or lay on one
  /// that it has not. not_supported if a GPU is wanted and there is no driver. The message stays,
  /// for a receive with `.device = cpu()`.
  /// Without `.device` a message never makes this process use CUDA.
  [[nodiscard]] Result<TensorDict> recv(const RecvOptions& options, Deadline deadline);
  /// Receives into existing leaves of the same schema (schema_mismatch leaves the message in the
  /// pipe); one copy, over tcp none. The message's non-tensor values are set too: they replace
  /// values, and TensorDicts without tensors, never a tensor. After an error the elements are
  /// unspecified and the values unchanged. Leaves may lie on one GPU, without gaps; work that the
  /// stream of `on` gets later finds the elements.
  [[nodiscard]] Result<void> recv_into(TensorDict& destination, Deadline deadline,
                                       const OnStream& on = {});
  /// Receives a message of either kind. Leaves on a GPU are copied there.
  [[nodiscard]] Result<Message> recv_message(Deadline deadline);
  /// Puts a received message back; the next receive returns it. For a caller that is interrupted
  /// before it could use the message, as a binding is by a signal.
  void give_back(Message message);
  /// The same for the last recv_into(): puts back a copy of `destination`.
  [[nodiscard]] Result<void> give_back_from(const TensorDict& destination);
  /// Copies leaves that are wanted on a GPU; when it is done they are there for any stream. Where
  /// that is impossible the message stays, as for recv(). The next receive waits until this one has
  /// ended. After a cancel the stream must live until the device thread is done.
  [[nodiscard]] Completion<TensorDict> recv_async(const RecvOptions& options = {});
  /// The result is `destination`, with the message's non-tensor values set in it.
  [[nodiscard]] Completion<TensorDict> recv_into_async(TensorDict destination);
  [[nodiscard]] Completion<Message> recv_message_async();
  /// Iterates over messages: `for (Result<TensorDict>& batch : pipe.each(1s))`. The loop ends at
  /// the end of the stream, and after the first error, a timeout too, which is the last item.
  /// `per_message` bounds the wait for each; std::chrono::nanoseconds::max() waits for ever.
  [[nodiscard]] PipeRange each(std::chrono::nanoseconds per_message);

  /// Waits until the peer's Tendon holds everything sent so far. Succeeds also if the peer took
  /// everything and then closed its end; `pipe_closed` if it closed before that.
  [[nodiscard]] Result<void> flush(Deadline deadline);
  /// Flushes, then ends both directions here in order. Later calls return `pipe_closed`.
  [[nodiscard]] Result<void> close(Deadline deadline);
  /// Half-closes: the peer reads to the end and gets end_of_stream; receiving continues here.
  [[nodiscard]] Result<void> finish_sending(Deadline deadline);
  /// Ends both directions now: unread data is dropped and counted, the peer gets `cancelled`.
  void cancel();
  /// Cancels with a reason, whose text the peer gets. It also gets the code if that speaks of this
  /// side (server_busy, internal, ...; not timeout, which would tell the peer to try again).
  void cancel(const Error& reason);

  [[nodiscard]] Path path() const;
  [[nodiscard]] PeerIdentity peer() const;
  [[nodiscard]] PipeStats stats() const;
  /// The path of each GPU whose tensors were sent to this peer.
  [[nodiscard]] std::vector<PathOfDevice> device_paths() const;

 private:
  friend class detail::PipeCore;
  explicit Pipe(std::shared_ptr<detail::PipeCore> core);
  std::shared_ptr<detail::PipeCore> core_;
};

/// The messages of a pipe, one after the other; made by Pipe::each(). Single pass.
class TENDON_API PipeRange {
 public:
  class Iterator {
   public:
    using value_type = Result<TensorDict>;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    [[nodiscard]] Result<TensorDict>& operator*() const { return *range_->current_; }
    Iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { range_->advance(); }
    [[nodiscard]] bool operator==(std::default_sentinel_t) const { return !range_->current_; }

   private:
    friend class PipeRange;
    explicit Iterator(PipeRange* range) : range_(range) {}
    PipeRange* range_;
  };

  [[nodiscard]] Iterator begin() {
    advance();
    return Iterator(this);
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  friend class Pipe;
  PipeRange(Pipe& pipe, std::chrono::nanoseconds per_message)
      : pipe_(&pipe), per_message_(per_message) {}
  void advance();

  Pipe* pipe_;
  std::chrono::nanoseconds per_message_;
  std::optional<Result<TensorDict>> current_;
  bool failed_ = false;
};

}  // namespace v0
}  // namespace tendon
