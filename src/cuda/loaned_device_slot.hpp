// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/memory/storage.hpp>

#include "cuda/device_pool.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

/// A slot on a GPU that the program fills before it is sent: the owner of the memory of a loan.
///
/// Owns:    a share of the slot. It is dropped when the GPU has done all work that the program's
///          stream has at the end of this object; at once, if it was sent and nobody else had it.
/// Threads: note_sealed() and note_ordered() in one thread at a time, before the last share is
///          dropped, which may be anywhere, as for deliver().
/// Errors:  none. In a lost context the slot is dropped; in a forked child nothing is done.
/// Blocks:  never.
/// Cost:    about 2 us at the end, for an event, unless it is dropped at once.
class LoanedDeviceSlot : public std::enable_shared_from_this<LoanedDeviceSlot> {
 public:
  /// `stream` is the one on which the program works there; it must live until this object has
  /// ended.
  [[nodiscard]] static std::shared_ptr<LoanedDeviceSlot> make(std::shared_ptr<Gpu> gpu,
                                                              std::shared_ptr<DeviceSlot> slot,
                                                              StreamName stream);
  LoanedDeviceSlot(const LoanedDeviceSlot&) = delete;
  LoanedDeviceSlot& operator=(const LoanedDeviceSlot&) = delete;
  ~LoanedDeviceSlot();

  /// The loan of this memory; null: none.
  [[nodiscard]] static const LoanedDeviceSlot* find(const Storage& storage);
  /// All of it, writable, for `owner`, which make() returned.
  [[nodiscard]] static Storage storage(const std::shared_ptr<LoanedDeviceSlot>& owner,
                                       std::uint64_t size_bytes);

  [[nodiscard]] const std::shared_ptr<DeviceSlot>& slot() const noexcept { return slot_; }
  [[nodiscard]] const std::shared_ptr<Gpu>& gpu() const noexcept { return gpu_; }
  /// Notes that its Loan is about to be sent. Other tensors of it that the program has now may be
  /// read at any time, on streams for which its own one waits only when they are dropped.
  void note_sealed() noexcept { is_alone_ = weak_from_this().use_count() == kSharesOfLoan; }
  /// Notes that it was sent: the slot has another share that waits for the filling work, or none of
  /// that work is left.
  void note_ordered() noexcept { is_ordered_ = is_alone_; }

 private:
  static constexpr long kSharesOfLoan = 2;  // its own, and that of its batch
  LoanedDeviceSlot(std::shared_ptr<Gpu> gpu, std::shared_ptr<DeviceSlot> slot, StreamName stream);

  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<DeviceSlot> slot_;
  const StreamName stream_;
  bool is_alone_ = false;  // when it was sealed
  bool is_ordered_ = false;
};

}  // namespace tendon::v0::detail::cuda
