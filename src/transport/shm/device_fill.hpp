// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <utility>

#include "cuda/loaned_device_slot.hpp"
#include "cuda/stream_work.hpp"
#include "transport/descriptor.hpp"
#include "transport/shm/device_copies.hpp"
#include "transport/shm/device_holds.hpp"

namespace tendon::v0::detail {

/// The leaves of an outgoing message that lie on a GPU: a slot there, the copies into it, which are
/// enqueued, and the hold that its link has of it. The slot of a loan has no copies: its word
/// follows the work of the program.
///
///   filled -> placed by the link, which gives the number -> finish(), when it was shown
///          -> dropped: the message is not sent
///
/// Owns:    the hold; shares of the slot and of all that the copies need, until they are done.
/// Threads: one at a time.
/// Errors:  none: a word that cannot be written makes the message incomplete, which the peer is
///          told.
/// Blocks:  never.
/// Cost:    of finish(): about 3 us for the word and an event.
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
    std::shared_ptr<cuda::LoanedDeviceSlot> loan{};  ///< which ends with the message
  };
  /// `device`: its number in this side's offers.
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

  /// As it stands behind the header.
  [[nodiscard]] Bytes part() const noexcept { return std::as_bytes(std::span(&part_, 1)); }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return part_.size_bytes; }

  [[nodiscard]] bool is_loan() const noexcept { return parts_.from == From::loan; }

  [[nodiscard]] cuda::Gpu& gpu() const noexcept { return *parts_.gpu; }

  // The link, under its sending lock
  void number(std::uint64_t word) noexcept { part_.word = word; }
  void note_placed(const std::shared_ptr<DeviceCopies>& copies, std::weak_ptr<Link> link) {
    copies->begin(part_.word);
    parts_.hold->note_shown();
    copy_ =
        std::make_shared<DeviceCopy>(DeviceCopy::Ends{copies, parts_.words, parts_.gpu->context(),
                                                      std::move(link), std::move(parts_.wake)},
                                     part_.word);
  }

  /// Lets the stream write the word. The sender, under no lock, after the message was shown.
  void finish() {
    if (parts_.work.write_word(copy_->word(), copy_->number()))
      parts_.work.keep(copy_);
    else
      copy_->fail();
    copy_ = nullptr;
    if (parts_.loan != nullptr) parts_.loan->note_ordered();
  }

 private:
  Parts parts_;
  DevicePart part_;
  std::shared_ptr<DeviceCopy> copy_;  // between the two
};

}  // namespace tendon::v0::detail
