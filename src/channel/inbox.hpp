// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/message.hpp"

namespace tendon::v0::detail {

/// Messages that arrived and were not taken yet, in order. It keeps its memory: a stream in steady
/// state allocates nothing, which std::deque does not promise.
class Inbox {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Precondition of both: not empty.
  [[nodiscard]] Incoming& front() noexcept { return places_[head_]; }
  /// The last whole message for which `wanted` is true; null: none.
  template <class Wanted>
  [[nodiscard]] const Incoming* last_arrived(Wanted wanted) {
    for (std::size_t i = count_; i != 0; --i) {
      Incoming& each = places_[(head_ + i - 1) & (places_.size() - 1)];
      if (each.arrived() && wanted(each.descriptor)) return &each;
    }
    return nullptr;
  }
  [[nodiscard]] Incoming pop_front() {
    Incoming first = std::move(places_[head_]);
    head_ = (head_ + 1) & (places_.size() - 1);
    --count_;
    return first;
  }
  /// Drops aborted messages, wherever they stand.
  void drop_aborted() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      Incoming& incoming = places_[(head_ + i) & (places_.size() - 1)];
      if (incoming.aborted()) continue;
      if (kept != i) places_[(head_ + kept) & (places_.size() - 1)] = std::move(incoming);
      ++kept;
    }
    for (std::size_t i = kept; i < count_; ++i)
      places_[(head_ + i) & (places_.size() - 1)] = Incoming();
    count_ = kept;
  }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count_; ++i)
      bytes += places_[(head_ + i) & (places_.size() - 1)].held_bytes();
    return bytes;
  }
  void push_back(Incoming&& incoming) {
    if (count_ == places_.size()) grow();
    places_[(head_ + count_) & (places_.size() - 1)] = std::move(incoming);
    ++count_;
  }

 private:
  void grow() {
    // Small at first: of ten thousand channels most have one message at a time.
    std::vector<Incoming> larger(places_.empty() ? 1 : places_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i)
      larger[i] = std::move(places_[(head_ + i) & (places_.size() - 1)]);
    places_ = std::move(larger);
    head_ = 0;
  }

  std::vector<Incoming> places_;  // a power of two
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tendon::v0::detail
