// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/device_copies.hpp"

#include "transport/device_word.hpp"

namespace tendon::v0::detail {

std::optional<std::uint64_t> DeviceCopies::next() {
  const Lock lock(mutex_);
  std::uint64_t number = last_ + 1;
  for (std::uint32_t i = 0; i < ReadyWords::kCount && lost_[number % ReadyWords::kCount]; ++i)
    ++number;
  if (lost_[number % ReadyWords::kCount]) return std::nullopt;
  if (!in_use_[number % ReadyWords::kCount]) return number;
  is_asked_ = true;
  return std::nullopt;
}

void DeviceCopies::begin(std::uint64_t number) {
  const Lock lock(mutex_);
  last_ = number;
  in_use_.set(number % ReadyWords::kCount);
  ++under_way_count_;
}

bool DeviceCopies::are_over() {
  const Lock lock(mutex_);
  if (under_way_count_ != 0) is_asked_ = true;
  return under_way_count_ == 0;
}

bool DeviceCopies::end(std::uint64_t number, How how, const PeerWords& words) {
  bool was_asked = false;
  {
    const Lock lock(mutex_);
    in_use_.reset(number % ReadyWords::kCount);
    if (how == How::lost) lost_.set(number % ReadyWords::kCount);
    --under_way_count_;
    was_asked = std::exchange(is_asked_, false);
    if (was_asked) has_news_.store(true, std::memory_order_release);
    // Under the lock: the count must only rise.
    if (how == How::done) words.memory->told.store(++done_count_, std::memory_order_release);
  }
  if (how == How::done) memory_->wake(SleepWord<>::kForMessages);
  return was_asked;
}

DeviceCopy::~DeviceCopy() {
  if (!ends_.context->is_of_this_process()) return;
  const bool is_lost = has_failed_ || ends_.context->loss() != cuda::Status::success;
  const auto how = is_lost ? DeviceCopies::How::lost : DeviceCopies::How::done;
  if (is_lost) {
    if (const auto link = ends_.link.lock()) {
      Descriptor word = device_word(DeviceWord::incomplete, 0);
      word.sequence = number_;
      link->post(word);
    }
  }
  const bool was_asked = ends_.copies->end(number_, how, *ends_.words);
  if (was_asked && ends_.wake) ends_.wake();
  if (ends_.told) ends_.told(how);
}

void DeviceCopy::write_word() noexcept {
  if (!ends_.context->is_of_this_process()) return;
  if (ends_.context->loss() != cuda::Status::success) return;
  auto& word = ends_.words->memory->words[number_ % ReadyWords::kCount];
  word.store(number_, std::memory_order_release);
}

}  // namespace tendon::v0::detail
