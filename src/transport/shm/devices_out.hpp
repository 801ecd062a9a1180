// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "cuda/device_segment.hpp"
#include "cuda/gpu.hpp"
#include "memory/segment.hpp"
#include "transport/device_word.hpp"
#include "transport/shm/device_copies.hpp"
#include "transport/shm/device_holds.hpp"
#include "transport/shm/peer_devices.hpp"

namespace tendon::v0::detail {

/// What a peer may read of the GPUs of this process, and how it has said that it does
/// (docs/protocol.md, "GPUs"). GPUs are named by their numbers in this side's offers.
///
/// Owns:    the peer's ready words as mapped and registered here; holds in the pools on GPUs.
/// Threads: thread-safe, by short locks under which no call of the driver is made.
/// Errors:  protocol_violation for an answer that no honest peer gives, which ends the link.
/// Blocks:  words(), for the device thread at the first use of a GPU, until its deadline.
/// Cost:    a lock.
class DevicesOut {
 public:
  DevicesOut(std::string peer_name, const std::shared_ptr<ShmMemory>& memory);
  DevicesOut(const DevicesOut&) = delete;
  DevicesOut& operator=(const DevicesOut&) = delete;

  // Answers
  /// Word `answer`, of a GPU below `offered_count`; `direct` alone has a descriptor.
  [[nodiscard]] Result<void> take_answer(const Descriptor& word, OwnedFd descriptor,
                                         std::uint32_t offered_count);
  enum class Way : std::uint8_t {
    unknown,  ///< the peer has not answered
    direct,
    staged,
  };
  [[nodiscard]] Way way(std::uint32_t device) const;
  /// Why it is staged, for people.
  [[nodiscard]] std::string why_staged(std::uint32_t device) const;
  /// The words of the peer, for a GPU whose way is direct. Errors of the driver make it staged. Null
  /// with a deadline that has passed: they are there for a later call.
  [[nodiscard]] Result<std::shared_ptr<const PeerWords>> words(
      std::uint32_t device, const std::shared_ptr<cuda::Gpu>& gpu, Deadline deadline);

  /// A peer that has not used CUDA maps the segment that it was passed once it does, and answers
  /// anew. Is there none for that?
  [[nodiscard]] bool lacks_question(std::uint32_t device) const;
  /// Keeps this one, which was passed, until the peer answers otherwise.
  void keep_question(std::uint32_t device, std::shared_ptr<cuda::DeviceSegment> segment);

  // Segments
  [[nodiscard]] bool is_announced(std::uint32_t segment) const;
  /// Room for one more at the peer.
  [[nodiscard]] bool has_room() const;
  void note_announced(std::uint32_t segment, const std::shared_ptr<cuda::DeviceSegment>& memory);
  /// Those that were released since the last call: the peer is told.
  [[nodiscard]] std::vector<std::uint32_t> take_gone();

  [[nodiscard]] DeviceHolds& holds() noexcept { return holds_; }
  [[nodiscard]] const DeviceHolds& holds() const noexcept { return holds_; }
  [[nodiscard]] const std::shared_ptr<DeviceCopies>& copies() const noexcept { return copies_; }

 private:
  struct Answer {
    std::uint64_t number = 0;  // of the last one; 0: none has come
    DeviceAnswer said{};
    std::shared_ptr<Segment> memory;         // of the words, from the first direct one on
    std::shared_ptr<const PeerWords> words;  // once they are registered
    std::string refused;                     // why they cannot be
    std::shared_ptr<cuda::DeviceSegment> question;
  };
  /// Jobs of the device thread have shares of it.
  struct Answers {
    Mutex mutex;
    std::map<std::uint32_t, Answer> by_device TENDON_GUARDED_BY(mutex);
  };
  [[nodiscard]] static Result<std::shared_ptr<const PeerWords>> register_words(Answers& answers,
                                                                               std::uint32_t device,
                                                                               cuda::Gpu& gpu);

  const std::string peer_name_;
  const std::shared_ptr<Answers> answers_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::weak_ptr<const cuda::DeviceSegment>> announced_
      TENDON_GUARDED_BY(mutex_);
  DeviceHolds holds_;
  const std::shared_ptr<DeviceCopies> copies_;
};

}  // namespace tendon::v0::detail
