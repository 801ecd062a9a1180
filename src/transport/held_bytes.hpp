// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <tendon/core/version.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Counts what the peer of one link makes this process hold: messages, from their arrival until the
/// program takes them, and beside them what channels keep (Link::budget()). The peer decides how
/// much comes, so this has a limit (docs/limits.md, "Links and pipes").
///
/// Owns:    counters.
/// Threads: the link's receive lock is held for every change; the counters may be read at any time.
///          After end() shares may go without that lock.
/// Errors:  none; asking before taking is the caller's business.
/// Blocks:  never.
/// Cost:    a few instructions, until end() none of them an atomic read-modify-write.
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

    [[nodiscard]] std::uint64_t size_bytes() const noexcept {
      return held_ == nullptr ? 0 : size_bytes_;
    }
    void give_back() noexcept {
      if (held_ != nullptr) std::exchange(held_, nullptr)->given_back(size_bytes_);
    }

   private:
    HeldBytes* held_ = nullptr;
    std::uint64_t size_bytes_ = 0;
  };

  /// `on_given_back` is told of every share that was given back before end(), under the locks that
  /// give_back() was called with.
  HeldBytes(std::uint64_t limit_bytes, std::function<void()> on_given_back)
      : limit_bytes_(limit_bytes), on_given_back_(std::move(on_given_back)) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() = default;

  /// A part of this size; nothing when there is no room for it.
  [[nodiscard]] std::optional<Share> ask(std::uint64_t size_bytes) {
    if (!has_room(size_bytes)) return std::nullopt;
    return Share(*this, size_bytes);
  }
  /// The link is over, and nobody holds its lock for what is left. The receive lock is held.
  void end() noexcept { ended_.store(true, std::memory_order_release); }
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
    if (ended_.load(std::memory_order_acquire)) {
      bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
      returned_bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
      return;
    }
    bytes_.store(bytes() - size_bytes, std::memory_order_relaxed);
    returned_bytes_.store(returned_bytes() + size_bytes, std::memory_order_relaxed);
    on_given_back_();
  }

  const std::uint64_t limit_bytes_;
  const std::function<void()> on_given_back_;
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> most_bytes_{0};
  std::atomic<std::uint64_t> returned_bytes_{0};
};

}  // namespace tendon::v0::detail
