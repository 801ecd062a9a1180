// SPDX-License-Identifier: Apache-2.0
// Asynchronous operations of a pipe: what waits in its queues, and what their completions do.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "pipe/pipe_core.hpp"

namespace tendon::inline v0::detail {

class PipeCore::SendCompletion final : public CompletionState<void> {
 public:
  explicit SendCompletion(std::shared_ptr<PipeCore> core) : core_(std::move(core)) {}
  void drive(Deadline deadline) override { core_->drive(*this, deadline); }
  void cancel() override { core_->cancel_send(this); }
  void abandon() override {}  // the message goes on its way
  void schedule(std::function<void()> run) override { core_->engine()->schedule(std::move(run)); }

 private:
  std::shared_ptr<PipeCore> core_;
};

template <class T>
class PipeCore::RecvCompletion : public CompletionState<T> {
 public:
  explicit RecvCompletion(std::shared_ptr<PipeCore> core) : core_(std::move(core)) {}
  void drive(Deadline deadline) override { core_->drive(*this, deadline); }
  void cancel() override { core_->cancel_recv(this); }
  void abandon() override {
    if (core_->engine()->forked()) return;
    if (!this->finished()) core_->cancel_recv(this);
    this->hand_back();
  }
  void left_over(Result<T> result) override {
    if (!result) return;
    if constexpr (std::is_same_v<T, TensorDict>) {
      PutBack returned;
      returned.message.tensors = *std::move(result);
      core_->put_back(std::move(returned));
    } else {
      core_->put_back({*std::move(result), 0});
    }
  }
  void schedule(std::function<void()> run) override { core_->engine()->schedule(std::move(run)); }

 private:
  std::shared_ptr<PipeCore> core_;
};

/// Of recv_into: what was dropped lies in the caller's memory, and stays there.
class PipeCore::IntoCompletion final : public RecvCompletion<TensorDict> {
 public:
  using RecvCompletion::RecvCompletion;
  void left_over(Result<TensorDict>) override {}
};

/// A send that waits for its turn. It holds everything its message is made of.
struct PipeCore::QueuedSend {
  TensorDict batch;
  std::shared_ptr<SlotLease> lease;
  Storage bytes;
  std::vector<std::byte> header;
  Outgoing out;
  std::shared_ptr<SendCompletion> completion;
};

/// A receive that waits for its message.
struct PipeCore::PostedRecv {
  using AnyCompletion = std::variant<std::shared_ptr<RecvCompletion<TensorDict>>,
                                     std::shared_ptr<RecvCompletion<Message>>>;
  AnyCompletion completion;
  std::optional<TensorDict> destination;  // of recv_into
};

}  // namespace tendon::inline v0::detail
