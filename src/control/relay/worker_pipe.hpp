// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tendon/control/limits.hpp>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "control/flows/flow_sender.hpp"
#include "pipe/send_to_many.hpp"
#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

class WorkerPipe;

/// Handles the events of a worker pipe: on the service thread, one call at a time for each pipe,
/// under no lock.
class PipeListener {
 public:
  virtual ~PipeListener() = default;
  virtual void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) = 0;
  virtual void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) = 0;
  /// The last call. `end_of_stream` when the peer closed in order.
  virtual void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) = 0;
};

/// A worker pipe at either end: words and tensors, whatever threads do meanwhile.
///
/// Owns:    the pipe, unsent words.
/// Threads: safe everywhere.
/// Errors:  through on_end(): those of Pipe, also of a word or of tensors that could not be sent,
///          protocol_violation for malformed words, and resource_exhausted when the peer stops
///          reading words.
/// Blocks:  only close().
/// Cost:    one message a word.
class WorkerPipe : public std::enable_shared_from_this<WorkerPipe> {
 public:
  WorkerPipe(Pipe pipe, std::weak_ptr<PipeListener> listener)
      : pipe_(std::move(pipe)), listener_(std::move(listener)) {}

  /// Starts the calls of the listener.
  void start() { listen(); }
  /// Never waits. A word that cannot be sent ends the pipe.
  void send(const v1::Word& word) TENDON_EXCLUDES(mutex_);
  /// The same, unless words wait already: one that is out of date when it arrives is not worth it.
  void send_if_idle(const v1::Word& word) TENDON_EXCLUDES(mutex_);
  /// The same, unless so many bytes wait that it would have to. False: it was not sent.
  [[nodiscard]] bool send_if_room(const v1::Word& word) TENDON_EXCLUDES(mutex_);
  /// Sends the word, and these tensors after it. They are a result of keep() of any pipe of the
  /// Context.
  void send(const v1::Word& word, std::shared_ptr<const KeptBody> tensors) TENDON_EXCLUDES(mutex_);
  /// message_too_large for tensors that this pipe can never carry.
  [[nodiscard]] Result<void> check(const TensorDict& tensors) const {
    return check_for_many(pipe_, tensors);
  }
  /// Copies tensors for this pipe and others: the workers of this host read the same memory.
  [[nodiscard]] Result<std::shared_ptr<const KeptBody>> keep(const TensorDict& tensors) const {
    return keep_for_many(pipe_, tensors);
  }
  /// Sends waiting words, then the end. Blocks until the deadline.
  [[nodiscard]] Result<void> close(Deadline deadline) { return pipe_.close(deadline); }
  /// Ends it once waiting words have left; the peer gets the reason. Never waits.
  void end_when_sent(const Error& reason) TENDON_EXCLUDES(mutex_);
  /// Ends it now; the peer gets the reason.
  void cancel(const Error& reason) { pipe_.cancel(reason); }

  [[nodiscard]] PeerIdentity peer() const { return pipe_.peer(); }
  [[nodiscard]] Path path() const { return pipe_.path(); }

 private:
  void listen() TENDON_EXCLUDES(mutex_);
  void arrived(Result<Message> message);
  void post(const v1::Word& word) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool has_room(std::uint64_t size_bytes) TENDON_REQUIRES(mutex_);
  /// The number of waiting words and tensors.
  [[nodiscard]] std::size_t unsent() TENDON_REQUIRES(mutex_);
  void tensors_went(const Result<void>& result) TENDON_EXCLUDES(mutex_);
  /// Ends the pipe because of a failed send.
  void fail(const Error& why) TENDON_REQUIRES(mutex_);

  enum class What : std::uint8_t { word, tensors };
  struct Sending {
    What what;
    Completion<void> completion;
    std::uint64_t size_bytes = 0;  // of a word
  };
  Pipe pipe_;
  const std::weak_ptr<PipeListener> listener_;
  Mutex mutex_;
  std::deque<Sending> sending_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t unsent_bytes_ TENDON_GUARDED_BY(mutex_) = 0;  // of the words in it
  std::optional<Completion<Message>> receiving_ TENDON_GUARDED_BY(mutex_);
  std::optional<Error> failure_ TENDON_GUARDED_BY(mutex_);   // the failed send
  std::optional<Error> end_with_ TENDON_GUARDED_BY(mutex_);  // once all has been sent
};

/// Repeats requested messages, or says from which number on they exist. Returns their number: a
/// peer that reads too slowly gets the rest when it asks again.
[[nodiscard]] std::uint64_t send_again(const FlowSender& sender, const v1::ResendRequest& request,
                                       const v1::Word& word, WorkerPipe& pipe);

}  // namespace tendon::v0::detail
