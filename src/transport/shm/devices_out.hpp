// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "cuda/device_segment.hpp"
#include "cuda/gpu.hpp"
#include "cuda/registered_slots.hpp"
#include "memory/loaned_slot.hpp"
#include "memory/segment.hpp"
#include "session/features.hpp"
#include "transport/device_word.hpp"
#include "transport/shm/device_copies.hpp"
#include "transport/shm/device_holds.hpp"
#include "transport/shm/peer_devices.hpp"

namespace tendon::v0::detail {

/// Memory on GPUs of this process that a peer may read, and its answers about each GPU
/// (docs/protocol.md, "GPUs"). GPUs are named by their numbers in this side's offers.
///
/// Owns:    the peer's ready words as mapped and registered here; holds in the pools on GPUs; the
///          registrations of the link's own slots.
/// Threads: thread-safe, by short locks under which no call of the driver is made.
/// Errors:  protocol_violation for an answer that no honest peer sends, which ends the link.
/// Blocks:  words(), for the device thread at the first use of a GPU, until its deadline.
/// Cost:    a lock.
class DevicesOut {
 public:
  /// `link` outlives it. `pass` passes a word with a descriptor, under the lock of the pool's
  /// ledger. False: not now.
  using Pass = std::function<Result<bool>(const Descriptor& word, int descriptor)>;
  /// Whether the peer answers without a call of its program.
  enum class Peer : std::uint8_t { answers_by_itself, answers_in_calls };
  DevicesOut(Link& link, Peer peer, std::shared_ptr<SlotPool> pool,
             const std::shared_ptr<ShmMemory>& memory, Pass pass);
  DevicesOut(const DevicesOut&) = delete;
  DevicesOut& operator=(const DevicesOut&) = delete;

  // Answers
  /// Handles the word `answer`; only `direct` has a descriptor.
  [[nodiscard]] Result<void> take_answer(const Descriptor& word, OwnedFd descriptor);
  enum class Way : std::uint8_t {
    unknown,  ///< the peer has not answered
    direct,
    staged,
  };
  [[nodiscard]] Way way(std::uint32_t device) const;
  /// True if an answer is worth waiting for.
  [[nodiscard]] bool is_answered_soon() const noexcept { return peer_ == Peer::answers_by_itself; }
  /// The reason for staging, for people.
  [[nodiscard]] std::string why_staged(std::uint32_t device) const;
  /// The words of the peer, for a GPU whose way is direct. Errors of the driver make it staged.
  /// Null if the deadline has passed: they are ready for a later call.
  [[nodiscard]] Result<std::shared_ptr<const PeerWords>> words(
      std::uint32_t device, const std::shared_ptr<cuda::Gpu>& gpu, Deadline deadline);

  /// Asks a peer that has not used this GPU again. It maps the segment that it was passed once it
  /// uses the GPU, and answers anew. Passes a segment of the pool if it has none for that, and
  /// keeps it until then. A failure is left to the next call.
  void ask_again(std::uint32_t device, cuda::DevicePool& pool, Deadline deadline);
  /// Notes that its answer was awaited in vain. An answer ends that.
  void note_late(std::uint32_t device);
  [[nodiscard]] bool is_late(std::uint32_t device) const;

  // Slots
  /// Passes the segment of this slot to the peer, once. The peer answers the first of each GPU.
  /// `later`: the socket is full. Errors: resource_exhausted if the peer has kMostSegments.
  [[nodiscard]] Result<Sent> share(std::uint32_t device, const cuda::DeviceSlot& slot);
  /// Tells the peer which segments were released.
  void say_gone();
  /// Registers, after its next use, host memory of this link that a GPU here writes.
  void register_later(const LoanedSlot& slot);
  /// Handles the word `registers`: the peer's GPUs will read the link's slots. Returns its fault,
  /// or an empty text.
  [[nodiscard]] std::string_view keep_pages(Features features);
  /// Makes a hold of this slot for the peer. Null: it is beyond its share.
  [[nodiscard]] Result<std::unique_ptr<DeviceHold>> hold(const cuda::DeviceSlot& slot);

  // Messages. The link's sending lock is held
  /// Assigns the next number to the device part. False: its ready word is in use.
  [[nodiscard]] bool number(DeviceFill& fill);
  /// Notes that the message with a device part is placed.
  void note_placed(const SendOp& op);

  [[nodiscard]] DeviceHolds& holds() noexcept { return holds_; }
  [[nodiscard]] const DeviceHolds& holds() const noexcept { return holds_; }
  [[nodiscard]] const std::shared_ptr<DeviceCopies>& copies() const noexcept { return copies_; }

 private:
  struct Answer {
    std::uint64_t number = 0;  // of the last one; 0: none has arrived
    DeviceAnswer said{};
    std::shared_ptr<Segment> memory;         // of the words, from the first direct one on
    std::shared_ptr<const PeerWords> words;  // once they are registered
    std::string refused;                     // the reason if they cannot be
    std::shared_ptr<cuda::DeviceSegment> question;
    bool is_late = false;
  };
  /// Jobs of the device thread have shares of it.
  struct Answers {
    Mutex mutex;
    std::map<std::uint32_t, Answer> by_device TENDON_GUARDED_BY(mutex);
  };
  [[nodiscard]] static Result<std::shared_ptr<const PeerWords>> register_words(Answers& answers,
                                                                               std::uint32_t device,
                                                                               cuda::Gpu& gpu);

  [[nodiscard]] bool is_announced(std::uint32_t segment) const;

  Link& link_;
  const Peer peer_;
  const std::shared_ptr<SlotPool> pool_;
  const Pass pass_;
  const std::shared_ptr<Answers> answers_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::weak_ptr<const cuda::DeviceSegment>> announced_
      TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::shared_ptr<cuda::RegisteredSlots>> registered_
      TENDON_GUARDED_BY(mutex_);  // host memory, by segment
  bool keeps_pages_ TENDON_GUARDED_BY(mutex_) = false;
  DeviceHolds holds_;
  const std::shared_ptr<DeviceCopies> copies_;
};

}  // namespace tendon::v0::detail
