// SPDX-License-Identifier: Apache-2.0
#include "transport/lent_sample.hpp"

#include <utility>

namespace tendon::v0::detail {

LentSample::LentSample(Reader reader, const std::shared_ptr<const PublishedSlot>& slot, Bytes body,
                       Keeps keeps)
    : reader_(std::move(reader)), slot_(slot), lent_(body), keeps_(keeps), body_(body) {
  const Lock lock(mutex_);
  if (slot == nullptr)
    copy();
  else if (keeps_ == Keeps::until_sent)
    keep(slot);
}

LentSample::~LentSample() { end(); }

void LentSample::describe(SendOp& op) {
  const Lock lock(mutex_);
  name_body(op, body_, payload_);
}

const PublishedSlot* LentSample::slot() const {
  const Lock lock(mutex_);
  return kept_.get();
}

void LentSample::wait_no_more() {
  const Lock lock(mutex_);
  keeps_ = Keeps::once_begun;
  if (state_ == State::waiting) let_go();
}

bool LentSample::begin(SendOp& op) {
  const Lock lock(mutex_);
  if (state_ == State::over) return false;
  if (!keeps_body()) {
    if (auto slot = slot_.lock()) keep(std::move(slot));
  }
  if (!keeps_body()) {
    state_ = State::over;
    return false;
  }
  state_ = State::begun;
  moved_at_ = Clock::now();
  name_body(op, body_, payload_);
  return true;
}

void LentSample::note_moved() {
  const Lock lock(mutex_);
  moved_at_ = Clock::now();
}

void LentSample::end() {
  if (process_ != process_number()) return;  // a thread of the parent may have the lock
  const Lock lock(mutex_);
  state_ = State::over;
  let_go();
}

std::optional<LentSample::Clock::time_point> LentSample::still_since() const {
  const Lock lock(mutex_);
  if (state_ != State::begun || keeps_ == Keeps::until_sent) return std::nullopt;
  return moved_at_;
}

// Beyond what all readers together may have it is a copy.
void LentSample::keep(std::shared_ptr<const PublishedSlot> slot) {
  PublishPool& pool = *reader_.pool;
  if (&slot->pool() == &pool) {
    if (pool.give(reader_.number, *slot, reader_.share_bytes) != PublishPool::Window::open)
      return copy();
    counted_ = true;
  }
  body_ = lent_;
  kept_ = std::move(slot);
}

void LentSample::copy() {
  copy_.assign(lent_.begin(), lent_.end());
  body_ = copy_;
  copied_ = true;
  reader_.pool->count_copy(copy_.size());
  if (reader_.copied != nullptr && !slot_.expired())
    reader_.copied->fetch_add(1, std::memory_order_relaxed);
}

void LentSample::let_go() {
  if (std::exchange(counted_, false)) reader_.pool->take_back(reader_.number, kept_->id());
  kept_ = nullptr;
  if (std::exchange(copied_, false)) reader_.pool->uncount_copy(copy_.size());
  copy_ = {};
}

}  // namespace tendon::v0::detail
