// SPDX-License-Identifier: Apache-2.0
// Asynchronous operations of a pipe: the entries of its queues, and their completions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "channel/kept_body.hpp"
#include "cuda/stream_name.hpp"
#include "pipe/delivery.hpp"
#include "pipe/destination.hpp"
#include "pipe/filling.hpp"
#include "pipe/held_for_gpu.hpp"
#include "pipe/pipe_core.hpp"
#include "pipe/sought_gpu.hpp"
#include "runtime/awaited.hpp"

namespace tendon::v0::detail {

class SendCompletion final : public Awaited<void> {
 public:
  explicit SendCompletion(std::shared_ptr<PipeCore> core)
      : Awaited(*core->context()), core_(std::move(core)) {}
  void drive(Deadline deadline) override { core_->drive(*this, deadline); }
  void cancel() override { core_->cancel_send(this); }
  void abandon() override {}  // the message is sent all the same

 private:
  std::shared_ptr<PipeCore> core_;
};

template <class T>
class RecvCompletion : public Awaited<T> {
 public:
  explicit RecvCompletion(std::shared_ptr<PipeCore> core)
      : Awaited<T>(*core->context()), core_(std::move(core)) {}
  void drive(Deadline deadline) override { core_->drive(*this, deadline); }
  void cancel() override { core_->cancel_recv(this); }
  void abandon() override {
    // Waits for a thread that is completing it; otherwise the next receive would overtake it.
    if (!this->finished() && !core_->cancel_recv(this)) drive(kCompletingPatience);
    this->hand_back();
  }
  void left_over(Result<T> result) override {
    if (!result) return;
    PutBack returned;
    returned.number = number_;
    returned.placement = placement_;
    if constexpr (std::is_same_v<T, TensorDict>)
      returned.message.tensors = *std::move(result);
    else
      returned.message = *std::move(result);
    core_->put_back(std::move(returned));
  }
  /// Called before finish() with a message.
  virtual void came_from(const Taken& taken) {
    number_ = taken.number;
    placement_ = taken.placement;
  }

 private:
  // The other thread has only a memcpy left.
  static constexpr std::chrono::seconds kCompletingPatience{1};
  std::shared_ptr<PipeCore> core_;
  std::uint64_t number_ = 0;
  std::shared_ptr<const Placement> placement_;  // of a recv_into, at the sender
};

/// A recv_into: a dropped message lies in the caller's memory, and stays there unless it is put
/// back.
class IntoCompletion final : public RecvCompletion<TensorDict> {
 public:
  using RecvCompletion::RecvCompletion;
  void give_back() override {
    gives_back_ = true;
    RecvCompletion::give_back();
  }
  void left_over(Result<TensorDict> filled) override {
    if (filled && gives_back_) RecvCompletion::left_over(message_in(*filled, std::move(values_)));
  }
  void came_from(const Taken& taken) override {
    RecvCompletion::came_from(taken);
    values_ = taken.values;
  }

 private:
  std::atomic<bool> gives_back_{false};
  std::shared_ptr<const Value> values_;
};

/// A send that waits for its turn. It holds all parts of its message.
struct QueuedSend {
  QueuedSend() = default;
  QueuedSend(const QueuedSend&) = delete;
  QueuedSend& operator=(const QueuedSend&) = delete;
  /// Owners of memory on a GPU may call the driver, which is the device thread's task here.
  ~QueuedSend() {
    if (gpu != nullptr) (void)gpu->thread().post([dropped = std::move(batch)] {});
  }

  TensorDict batch;
  std::shared_ptr<cuda::Gpu> gpu;  // some of its leaves lie there
  std::shared_ptr<LoanedSlot> slot;
  std::shared_ptr<const KeptBody> kept;
  Storage bytes;
  std::vector<std::byte> header;
  std::shared_ptr<const Filling> filling;  // of a batch that lies on a GPU, and is staged
  std::shared_ptr<HeldForGpu> held;        // of one that may only stay there
  std::shared_ptr<GpuAnswer> copied;       // of one that stays there
  Outgoing out;
  std::shared_ptr<SendCompletion> completion;
};

/// The message of a posted receive on its way to a GPU.
struct OnItsWay {
  std::shared_ptr<Delivery> delivery;
  PutBack returned;              // becomes the next message again, unless the GPU has made the copy
  bool is_in_peer_slot = false;  // in a slot that was not lent for long
};

/// A receive that waits for its message.
struct PostedRecv {
  using AnyCompletion = std::variant<std::shared_ptr<RecvCompletion<TensorDict>>,
                                     std::shared_ptr<RecvCompletion<Message>>>;
  AnyCompletion completion;
  std::optional<TensorDict> destination;  // of recv_into
  RecvMode mode = RecvMode::view_or_copy;
  std::optional<Device> device;  // the wanted place of its tensors; empty: as at their sender
  cuda::StreamName stream = static_cast<cuda::StreamHandle>(kStreamPerThread);
  // The fields below need the link's receive lock
  std::shared_ptr<const SoughtGpu> sought;  // `device`, where it is a GPU
  bool is_busy = false;  // a thread sends its message to the GPU, or takes it from there
  bool is_cancelled = false;
  std::optional<OnItsWay> on_its_way;
};

}  // namespace tendon::v0::detail
