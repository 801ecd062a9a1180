// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "cuda/uuid.hpp"
#include "session/features.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// The GPUs that the two sides of a link have named to each other. Each side counts its own from 0
/// on, in the order of its offers, because the two processes may see other GPUs under one number.
///
/// Owns:    UUIDs.
/// Threads: number_of() and own() from any thread; take_in() and of_peer() under the link's receive
///          lock.
/// Errors:  take_in() says which rule the peer broke.
/// Blocks:  never.
/// Cost:    a look over the offers of one side.
class DeviceOffers {
 public:
  /// The number by which the peer knows this GPU. One that is new is offered by `post` before any
  /// thread gets its number, so that the peer reads the offer first. Nothing: kMaxDevicesPerLink
  /// are known.
  template <class Post>
  [[nodiscard]] std::optional<std::uint32_t> number_of(const cuda::Uuid& gpu, Post post) {
    const Lock lock(mutex_);
    const auto known = find(gpu);
    if (known || is_full()) return known;
    const auto number = static_cast<std::uint32_t>(own_.size());
    own_.reserve(number + 1u);  // all that may fail comes first
    post(offer(number, gpu));
    own_.push_back(gpu);
    return number;
  }

  /// Those of this side, by number.
  [[nodiscard]] std::vector<cuda::Uuid> own() const {
    const Lock lock(mutex_);
    return own_;
  }

  /// An offer has arrived on a link with these features. Returns what is wrong with it, or an empty
  /// text.
  [[nodiscard]] std::string_view take_in(const Descriptor& word, Features features);
  /// The GPU that the peer offered under this number; null: none.
  [[nodiscard]] const cuda::Uuid* of_peer(std::uint32_t number) const noexcept {
    return number < peers_.size() ? &peers_[number] : nullptr;
  }

 private:
  [[nodiscard]] static Descriptor offer(std::uint32_t number, const cuda::Uuid& gpu) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> find(const cuda::Uuid& gpu) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool is_full() const noexcept TENDON_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<cuda::Uuid> own_ TENDON_GUARDED_BY(mutex_);
  std::vector<cuda::Uuid> peers_;
};

}  // namespace tendon::v0::detail
