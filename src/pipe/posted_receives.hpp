// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/channel.hpp"
#include "pipe/pipe_end.hpp"
#include "pipe/pipe_messages.hpp"

namespace tendon::v0::detail {

class PipeReceiver;
struct OnItsWay;
struct PostedRecv;

/// The asynchronous receives of a pipe, which get its messages in the order in which they were
/// posted. One message at a time is on its way to a GPU. The next receive waits until that one has
/// ended, so a message that cannot be delivered is still the next one.
///
/// Owns:    the receives; the message on its way.
/// Threads: thread-safe. Its lock is the link's receive lock; long work is done without it.
/// Errors:  each completion has its own: why the direction has ended, those of PipeReceiver, of the
///          search for the GPU, of the pool and of the driver.
/// Blocks:  never.
/// Cost:    that of the receiver for a message in host memory. To a GPU: two jobs of the device
///          thread or more, and an event.
class PostedReceives {
 public:
  PostedReceives(PipeReceiver& receiver, PipeEnd& end, Channel& channel);
  PostedReceives(const PostedReceives&) = delete;
  PostedReceives& operator=(const PostedReceives&) = delete;
  ~PostedReceives();

  Result<void> post(std::shared_ptr<PostedRecv> posted);
  bool cancel(const CompletionBase* completion);
  /// Hands messages to the waiting receives, in order. True while some still wait.
  bool progress() TENDON_EXCLUDES(channel_.receive_mutex());
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(); }
  // The link's receive lock is held
  [[nodiscard]] bool is_empty() const {
    channel_.receive_mutex().assert_held();
    return posted_.empty();
  }
  /// The destination of the next one; null: anywhere. Precondition: there is one.
  [[nodiscard]] const TensorDict* next_destination() const;

 private:
  /// The next step of the first receive.
  enum class Turn : std::uint8_t {
    waits,
    ends,     ///< with an error, or with the taken message
    departs,  ///< it is busy: the taken message is sent to a GPU
    arrives,  ///< it is busy: the GPU has answered
  };
  struct Step {
    std::shared_ptr<PostedRecv> posted;
    std::optional<Taken> taken;
    std::optional<Error> error;
    Descriptor credit;
  };

  Turn next_turn(Step& step) TENDON_REQUIRES(channel_.receive_mutex());
  Turn take_head(Step& step) TENDON_REQUIRES(channel_.receive_mutex());
  void remove(const PostedRecv& posted) TENDON_REQUIRES(channel_.receive_mutex());
  // While one is busy, nobody takes a message
  void depart(PostedRecv& posted, Taken taken) TENDON_EXCLUDES(channel_.receive_mutex());
  void arrive(PostedRecv& posted) TENDON_EXCLUDES(channel_.receive_mutex());
  /// Handles a cancelled one.
  void turn_back(PostedRecv& posted, OnItsWay away) TENDON_EXCLUDES(channel_.receive_mutex());
  /// Makes it the next message again.
  void put_back(OnItsWay undelivered) TENDON_EXCLUDES(channel_.receive_mutex());
  void end_busy(PostedRecv& posted, std::optional<Taken> taken, std::optional<Error> error)
      TENDON_EXCLUDES(channel_.receive_mutex());
  /// The completion may be dropped, which leads to put_back().
  void complete(PostedRecv& posted, std::optional<Taken> taken, std::optional<Error> error,
                CompletionStatus failed_as = CompletionStatus::failed)
      TENDON_EXCLUDES(channel_.receive_mutex());

  PipeReceiver& receiver_;
  PipeEnd& end_;
  ContextCore& context_;
  Channel& channel_;
  std::deque<std::shared_ptr<PostedRecv>> posted_ TENDON_GUARDED_BY(channel_.receive_mutex());
  std::atomic<std::size_t> count_{0};  // changed under the lock
};

}  // namespace tendon::v0::detail
