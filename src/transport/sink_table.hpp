// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/error.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/message.hpp"
#include "transport/message_sink.hpp"

namespace tendon::v0::detail {

/// What takes the messages of a link: the sink of each pipe, until the link's last word.
///
/// Owns:    a share of every sink that is attached.
/// Threads: the link's receive lock is held for every call but dropped_count(). Sinks are called
///          under it; they may attach and detach.
/// Errors:  a message for a pipe that is gone is dropped and counted.
/// Blocks:  never.
/// Cost:    a comparison for the pipe that was asked for last, else a look into a hash table.
class SinkTable {
 public:
  using Sinks = std::unordered_map<std::uint32_t, std::shared_ptr<MessageSink>>;

  void attach(std::uint32_t pipe, std::shared_ptr<MessageSink> sink) {
    last_sink_ = nullptr;
    sinks_[pipe] = std::move(sink);
  }
  void detach(std::uint32_t pipe) {
    last_sink_ = nullptr;
    sinks_.erase(pipe);
  }
  [[nodiscard]] std::size_t count() const noexcept { return sinks_.size(); }
  [[nodiscard]] bool contains(std::uint32_t pipe) const { return sinks_.contains(pipe); }
  /// Null: there is none.
  [[nodiscard]] MessageSink* find(std::uint32_t pipe) noexcept {
    if (last_sink_ != nullptr && last_pipe_ == pipe) return last_sink_;
    const auto found = sinks_.find(pipe);
    if (found == sinks_.end()) return nullptr;
    last_pipe_ = pipe;
    last_sink_ = found->second.get();
    return last_sink_;
  }
  void dispatch(Incoming&& incoming) {
    if (MessageSink* sink = find(incoming.descriptor.pipe)) {
      sink->on_message(std::move(incoming));
      return;
    }
    dropped_.store(dropped_count() + 1, std::memory_order_relaxed);
    incoming = Incoming();  // its body goes back now
  }
  /// Messages for pipes that were gone.
  [[nodiscard]] std::uint64_t dropped_count() const noexcept {
    return dropped_.load(std::memory_order_relaxed);
  }

  /// The sinks that are here now hear of it when the peer's death is proved, if they still exist.
  void await_proof() {
    for (const auto& [pipe, sink] : sinks_) without_proof_.push_back(sink);
  }
  void prove_death() {
    for (const auto& known : std::exchange(without_proof_, {}))
      if (const auto sink = known.lock()) sink->on_death_proved();
  }
  /// The last word. A pipe holds its link: to go on holding the pipe would keep both for ever.
  void end(const Error& error) {
    const Sinks sinks = take_all();
    told_any_ = told_any_ || !sinks.empty();
    for (const auto& [pipe, sink] : sinks) sink->on_link_failed(error);
  }
  /// end() has told a sink.
  [[nodiscard]] bool told_any() const noexcept { return told_any_; }
  /// Leaves none here, and says nothing to them.
  [[nodiscard]] Sinks take_all() {
    last_sink_ = nullptr;
    return std::exchange(sinks_, {});
  }

 private:
  Sinks sinks_;
  std::vector<std::weak_ptr<MessageSink>> without_proof_;  // told of an end without one
  bool told_any_ = false;
  // Most links carry one busy pipe.
  std::uint32_t last_pipe_ = 0;
  MessageSink* last_sink_ = nullptr;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace tendon::v0::detail
