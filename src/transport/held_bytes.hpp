// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <tendon/core/version.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Counts what messages of one link hold in this process, from their arrival until the program
/// takes them: the peer decides how much comes, so this has a limit (docs/limits.md, "Links and
/// pipes").
///
/// Owns:    counters.
/// Threads: the link's receive lock is held for every change; the counters may be read at any time.
///          Shares of a link that has ended may go without that lock.
/// Errors:  none; asking before taking is the caller's business.
/// Blocks:  never.
/// Cost:    a few instructions, none of them atomic read-modify-writes.
class HeldBytes {
 public:
  /// The part of one message. Given back when it goes.
  class Share {
   public:
    Share() = default;
    Share(HeldBytes& held, std::uint64_t size_bytes) : held_(&held), size_bytes_(size_bytes) {
      const std::uint64_t now_bytes = held.bytes() + size_bytes;
      held.bytes_.store(now_bytes, std::memory_order_relaxed);
      held.most_bytes_.store(std::max(held.most_bytes(), now_bytes), std::memory_order_relaxed);
    }
    Share(Share&& other) noexcept
        : held_(std::exchange(other.held_, nullptr)), size_bytes_(other.size_bytes_) {}
    Share& operator=(Share&& other) noexcept {
      if (this == &other) return *this;
      give_back();
      held_ = std::exchange(other.held_, nullptr);
      size_bytes_ = other.size_bytes_;
      return *this;
    }
    ~Share() { give_back(); }

    void give_back() noexcept {
      if (held_ != nullptr) std::exchange(held_, nullptr)->given_back(size_bytes_);
    }

   private:
    HeldBytes* held_ = nullptr;
    std::uint64_t size_bytes_ = 0;
  };

  /// `on_given_back` is told of every share that was given back, under the locks that give_back()
  /// was called with.
  HeldBytes(std::uint64_t limit_bytes, std::function<void()> on_given_back)
      : limit_bytes_(limit_bytes), on_given_back_(std::move(on_given_back)) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() = default;

  [[nodiscard]] bool has_room(std::uint64_t size_bytes) const noexcept {
    return size_bytes <= limit_bytes_ - std::min(bytes(), limit_bytes_);
  }
  [[nodiscard]] std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  /// Now; the most there ever was; given back since the link exists.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t most_bytes() const noexcept {
    return most_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t returned_bytes() const noexcept {
    return returned_bytes_.load(std::memory_order_relaxed);
  }

 private:
  void given_back(std::uint64_t size_bytes) noexcept {
    bytes_.store(bytes() - size_bytes, std::memory_order_relaxed);
    returned_bytes_.store(returned_bytes() + size_bytes, std::memory_order_relaxed);
    on_given_back_();
  }

  const std::uint64_t limit_bytes_;
  const std::function<void()> on_given_back_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> most_bytes_{0};
  std::atomic<std::uint64_t> returned_bytes_{0};
};

}  // namespace tendon::v0::detail
