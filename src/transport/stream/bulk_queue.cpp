// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/bulk_queue.hpp"

#include <algorithm>

#include "transport/stream/link_window.hpp"

namespace tendon::v0::detail {

void BulkQueue::add(SendOp& op) {
  ops_.push_back({&op, FrameCut{op.descriptor.body_bytes()}});
  waiting_descriptors_.fetch_add(1, std::memory_order_relaxed);
}

const BulkSend* BulkQueue::find(const SendOp& op) const noexcept {
  const auto at = std::ranges::find(ops_, &op, &BulkSend::op);
  return at == ops_.end() ? nullptr : &*at;
}

BulkSend* BulkQueue::find(const SendOp& op) noexcept {
  const auto at = std::ranges::find(ops_, &op, &BulkSend::op);
  return at == ops_.end() ? nullptr : &*at;
}

BulkSend* BulkQueue::find(const LentSample& lent) noexcept {
  const auto at =
      std::ranges::find(ops_, &lent, [](const BulkSend& sending) { return sending.op->lent; });
  return at == ops_.end() ? nullptr : &*at;
}

void BulkQueue::remove(const SendOp& op) {
  const auto at = std::ranges::find(ops_, &op, &BulkSend::op);
  if (at == ops_.end()) return;
  const BulkSend::State state = at->state;
  if (turn_ > static_cast<std::size_t>(at - ops_.begin())) --turn_;
  ops_.erase(at);
  if (state != BulkSend::State::enqueued) --open_count_;
  if (state != BulkSend::State::staged)
    waiting_descriptors_.fetch_sub(1, std::memory_order_relaxed);
  if (state != BulkSend::State::admitted) return;
  // The peer has not heard of this op.
  admitted_bytes_ -= op.descriptor.body_bytes();
  count_untaken();
}

void BulkQueue::clear() {
  ops_.clear();
  open_count_ = 0;
  waiting_descriptors_.store(0, std::memory_order_relaxed);
}

BulkSend* BulkQueue::admit() {
  if (open_count_ >= std::min<std::size_t>(ops_.size(), kMaxOpenTransfers)) return nullptr;
  const auto next = std::ranges::find(ops_, BulkSend::State::enqueued, &BulkSend::state);
  if (next == ops_.end()) return nullptr;
  const std::uint64_t body_bytes = next->cut.body_bytes;
  if (!fits_link_window(untaken_bytes(), body_bytes, peer_cap_bytes_)) return nullptr;
  next->state = BulkSend::State::admitted;
  ++open_count_;
  admitted_bytes_ += body_bytes;
  count_untaken();
  return &*next;
}

void BulkQueue::stage(BulkSend& sending) noexcept {
  sending.state = BulkSend::State::staged;
  announced_bytes_ += sending.cut.body_bytes;
  waiting_descriptors_.fetch_sub(1, std::memory_order_relaxed);
}

bool BulkQueue::on_taken(std::uint64_t taken_bytes) noexcept {
  if (taken_bytes > announced_bytes_) return false;
  taken_bytes_ = std::max(taken_bytes_, taken_bytes);
  count_untaken();
  return true;
}

bool BulkQueue::has_frame() const noexcept {
  return std::ranges::any_of(ops_, &BulkSend::has_frame);
}

bool BulkQueue::holds_descriptor_of(std::uint32_t pipe) const noexcept {
  return std::ranges::any_of(ops_, [pipe](const BulkSend& sending) {
    return sending.state != BulkSend::State::staged && sending.op->descriptor.pipe == pipe;
  });
}

}  // namespace tendon::v0::detail
