// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>
#include <utility>

#include "cuda/stream_work.hpp"
#include "transport/descriptor.hpp"
#include "transport/shm/device_copies.hpp"
#include "transport/shm/device_holds.hpp"

namespace tendon::v0::detail {

/// The word of a message whose caller returned before it was shown. The host writes it, once the
/// message is shown and the host has seen that its copies are done: nothing touches the caller's
/// stream any more.
///
/// Owns:    a share of the copy, between the two.
/// Threads: thread-safe; a short lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    that of the end of a DeviceCopy.
class LateWord {
 public:
  void note_copied() {
    std::shared_ptr<DeviceCopy> copy;
    {
      const Lock lock(mutex_);
      is_copied_ = true;
      copy = std::move(copy_);
    }
    if (copy != nullptr) copy->write_word();
  }
  void note_shown(std::shared_ptr<DeviceCopy> copy) {
    {
      const Lock lock(mutex_);
      if (!is_copied_) {
        copy_ = std::move(copy);
        return;
      }
    }
    copy->write_word();
  }

 private:
  Mutex mutex_;
  bool is_copied_ TENDON_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DeviceCopy> copy_ TENDON_GUARDED_BY(mutex_);
};

/// The leaves of an outgoing message that lie on a GPU: a slot there, the enqueued copies into it,
/// and the hold that its link has of it. The slot of a loan has no copies: its word follows the
/// work of the program.
///
///   filled -> placed by the link, which numbers it -> note_shown()
///          -> dropped: the message is not sent
///
/// The caller that has filled it calls leave() before it returns. If the message is shown by then,
/// the stream writes the word after the copies; else the host does, later.
///
/// Owns:    the hold; shares of the slot and of all memory that the copies need, until they are
///          done.
/// Threads: thread-safe from number() on.
/// Errors:  none: a word that cannot be written makes the message incomplete, which the peer is
///          told.
/// Blocks:  never.
/// Cost:    leave(): about 3 us for the word and an event.
class DeviceFill {
 public:
  enum class From : std::uint8_t { copies, loan };
  struct Parts {
    std::shared_ptr<cuda::Gpu> gpu;
    cuda::StreamWork work;
    std::shared_ptr<cuda::DeviceSlot> slot;
    std::unique_ptr<DeviceHold> hold;
    std::shared_ptr<const PeerWords> words;
    std::function<void()> wake;  ///< see DeviceCopy
    From from = From::copies;
  };
  /// `device` is its number in this side's offers.
  DeviceFill(Parts parts, std::uint32_t device, std::uint64_t size_bytes)
      : parts_(std::move(parts)) {
    const SlotId id = parts_.slot->id();
    part_ = {device, id.segment, id.slot, 0, id.generation, size_bytes, 0};
  }
  DeviceFill(const DeviceFill&) = delete;
  DeviceFill& operator=(const DeviceFill&) = delete;
  ~DeviceFill() {
    if (copy_ != nullptr) copy_->fail();
  }

  /// The part in its place behind the header.
  [[nodiscard]] Bytes part() const noexcept { return std::as_bytes(std::span(&part_, 1)); }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return part_.size_bytes; }
  [[nodiscard]] bool is_loan() const noexcept { return parts_.from == From::loan; }
  /// Calls `told` when the GPU has copied a placed message, or never will. Call it before the send.
  void tell(std::function<void(DeviceCopies::How)> told) { told_ = std::move(told); }

  // Called by the link, under its sending lock
  void number(std::uint64_t word) noexcept { part_.word = word; }
  void note_placed(const std::shared_ptr<DeviceCopies>& copies, std::weak_ptr<Link> link) {
    copies->begin(part_.word);
    parts_.hold->note_shown();
    const Lock lock(mutex_);
    copy_ = std::make_shared<DeviceCopy>(
        DeviceCopy::Ends{copies, parts_.words, parts_.gpu->context(), std::move(link),
                         std::move(parts_.wake), std::move(told_)},
        part_.word);
  }

  /// Called by the sender, after the message was shown. No call of the driver.
  void note_shown() {
    std::shared_ptr<DeviceCopy> copy;
    {
      const Lock lock(mutex_);
      is_shown_ = true;
      if (late_word_ != nullptr) copy = std::move(copy_);
    }
    if (copy != nullptr) late_word_->note_shown(std::move(copy));
  }
  /// Called once by the thread that has filled it, under no lock: its stream is not used any more.
  void leave() {
    std::shared_ptr<DeviceCopy> copy;
    {
      const Lock lock(mutex_);
      if (is_shown_)
        copy = std::move(copy_);
      else
        late_word_ = std::make_shared<LateWord>();
    }
    cuda::StreamWork work = std::move(parts_.work);
    if (late_word_ != nullptr) {
      work.keep({late_word_.get(), [late = late_word_](const void*) { late->note_copied(); }});
    } else if (copy != nullptr) {
      if (work.write_word(copy->word(), copy->number()))
        work.keep(std::move(copy));
      else
        copy->fail();
    }
  }

 private:
  Parts parts_;
  DevicePart part_;
  std::function<void(DeviceCopies::How)> told_;
  Mutex mutex_;
  bool is_shown_ TENDON_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DeviceCopy> copy_;     // from placed to shown and left; changed under the lock
  std::shared_ptr<LateWord> late_word_;  // of a message that was left before; set once under the
                                         // lock
};

}  // namespace tendon::v0::detail
