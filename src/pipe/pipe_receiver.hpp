// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/pipe.hpp>
#include <vector>

#include "channel/channel.hpp"
#include "channel/direct_batch.hpp"
#include "channel/direct_views.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_work.hpp"
#include "pipe/destination.hpp"
#include "pipe/pipe_end.hpp"
#include "pipe/pipe_messages.hpp"
#include "pipe/posted_receives.hpp"

namespace tendon::v0::detail {

/// The receiving half of a pipe: arrived messages wait here for the calls that take them, posted
/// receives first.
///
/// Owns:    messages that were not taken, or put back; the posted receives.
/// Threads: thread-safe; a second blocking receive at a time returns `busy`. Its lock is the link's
///          receive lock.
/// Errors:  why the direction has ended; `timeout`, `wrong_kind`, `schema_mismatch`, `no_credit`;
///          `corrupt_data` and `limit_exceeded` of one message, which is consumed.
/// Blocks:  recv(), recv_into(), recv_message(): until the deadline.
/// Cost:    that lock for each receive, and the work of the link.
class PipeReceiver {
 public:
  PipeReceiver(PipeEnd& end, Channel& channel);
  ~PipeReceiver();

  Result<TensorDict> recv(const RecvOptions& options, Deadline deadline);
  Result<void> recv_into(TensorDict& destination, const OnStream& on, Deadline deadline);
  Result<Message> recv_message(Deadline deadline);
  /// Makes a received message the next one again.
  void give_back(Message message);
  /// The same for the message that the last recv_into() wrote to `destination`.
  Result<void> give_back_from(const TensorDict& destination);

  [[nodiscard]] PostedReceives& posted() noexcept { return posted_; }
  /// `behind_equals`: it was put back, and others may have been before it. Else it was the head.
  enum class Place : std::uint8_t { behind_equals, before_equals };
  void put_back(PutBack returned, Place place = Place::behind_equals);
  void note_copy(std::uint64_t bytes, DeviceCopyKind copy)
      TENDON_EXCLUDES(channel_.receive_mutex());

  // Events of the channel: the link's receive lock is held
  [[nodiscard]] bool claim(const Descriptor& descriptor, std::vector<MutableBytes>& pieces);
  void on_transfer_ended(const Transfer& transfer);
  void on_link_ended() noexcept;
  /// Tells the peer of all taken messages, though no step of the window is whole.
  void credit_all() TENDON_EXCLUDES(channel_.receive_mutex());
  /// Drops arrived messages: nobody will take them.
  void drop_inbox();
  /// The same, when this side of the pipe is closed.
  void drop_all();

  /// The untaken bytes when the link ended: nothing arrives any more.
  [[nodiscard]] std::uint64_t left_bytes() const noexcept { return left_bytes_; }
  [[nodiscard]] PipeStats stats() const;

 private:
  friend class PostedReceives;

  enum class Want : std::uint8_t {
    tensors,  ///< where their sender had them
    on_cpu,
    on_gpu,
    any,  ///< tensors, as above, or bytes
  };
  enum class Head : std::uint8_t { nothing, message, over };
  /// Whether the head may be lent to the user, or must be copied.
  enum class Lend : std::uint8_t { yes, no };

  Head look() TENDON_REQUIRES(channel_.receive_mutex());
  Result<Lend> check_take(Want want, RecvMode mode, const TensorDict* destination)
      TENDON_REQUIRES(channel_.receive_mutex());
  [[nodiscard]] Descriptor take(RecvMode mode, const TensorDict* destination, Lend lend,
                                Taken& taken) TENDON_REQUIRES(channel_.receive_mutex());
  void drop_claim() TENDON_REQUIRES(channel_.receive_mutex());
  bool keep_claim(const TensorDict& destination) TENDON_REQUIRES(channel_.receive_mutex());
  /// The placement of the head's leaves at its sender; null: in host memory.
  [[nodiscard]] const Placement* head_placement() TENDON_REQUIRES(channel_.receive_mutex());
  /// True if its tensors lie on a GPU, in memory of the peer. It may not have arrived yet.
  [[nodiscard]] bool head_is_direct() TENDON_REQUIRES(channel_.receive_mutex());
  Result<TensorDict> deliver(Taken& taken, std::shared_ptr<cuda::Gpu> gpu,
                             const RecvOptions& options, Deadline deadline)
      TENDON_EXCLUDES(channel_.receive_mutex());
  /// The same for a message whose tensors lie on a GPU, in memory of the peer.
  Result<TensorDict> deliver_direct(Taken& taken, Want want, std::shared_ptr<cuda::Gpu> gpu,
                                    const RecvOptions& options, Deadline deadline)
      TENDON_EXCLUDES(channel_.receive_mutex());
  Result<TensorDict> in_host_memory(const DirectMessage& message, Taken& taken, Deadline deadline);
  Result<void> recv_into_gpu(TensorDict& destination, const OnStream& on, Deadline deadline);
  Result<DeviceCopyKind> copy_to_leaves(Taken& taken, TensorDict& destination,
                                        cuda::StreamWork& work, Deadline deadline);
  bool destination_free(const TensorDict* destination) TENDON_REQUIRES(channel_.receive_mutex());
  Error over() const TENDON_REQUIRES(channel_.receive_mutex());
  Result<bool> try_take(Want want, RecvMode mode, const TensorDict* destination, Taken& taken);
  Result<void> wait_take(Want want, RecvMode mode, const TensorDict* destination, Deadline deadline,
                         std::string_view where, Taken& taken);
  Result<Message> to_message(Taken taken);
  Result<TensorDict> to_tensors(Taken& taken);
  Result<void> fill(Taken& taken, TensorDict& destination, Deadline deadline);
  Result<void> fill_direct(Taken& taken, TensorDict& destination, Deadline deadline);
  Result<void> copy_into(Taken& taken, TensorDict& destination, Deadline deadline);
  Error keep_for_later(const Taken& taken, TensorDict tensors, std::uint64_t copied_bytes);

  PipeEnd& end_;
  ContextCore& context_;
  Link& link_;
  Channel& channel_;
  std::atomic<bool> user_receiving_{false};
  // The values of the message that the last recv_into() took; of the thread that receives.
  std::optional<std::shared_ptr<const Value>> filled_values_;
  std::shared_ptr<const Placement> filled_placement_;  // at its sender
  std::deque<PutBack> put_back_ TENDON_GUARDED_BY(channel_.receive_mutex());
  // The destination of the waiting recv_into, which blocks.
  const TensorDict* waiting_ TENDON_GUARDED_BY(channel_.receive_mutex()) = nullptr;
  Destination destination_ TENDON_GUARDED_BY(channel_.receive_mutex());
  std::atomic<std::uint64_t> left_bytes_{0};
  DirectViews views_;
  PipeStats stats_ TENDON_GUARDED_BY(channel_.receive_mutex());
  PostedReceives posted_;
};

}  // namespace tendon::v0::detail
