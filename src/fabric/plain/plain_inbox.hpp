// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/sample.hpp>
#include <tendon/fabric/subscriber.hpp>
#include <tendon/tensor/schema.hpp>
#include <utility>

#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The keys and forms that a subscriber takes from plain Zenoh peers.
struct PlainWanted {
  KeyExpression keys;
  std::size_t most_samples = 1;
  std::shared_ptr<const Schema> schema = nullptr;  ///< null: any
  PlainContent content = PlainContent::tensors;
};
/// Counts of samples of plain Zenoh peers.
struct PlainCounts {
  std::uint64_t taken = 0;
  std::uint64_t dropped = 0;
  std::uint64_t refused = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t deleted = 0;
};

/// The samples of plain Zenoh peers on the keys of a subscriber, before they are taken. Samples of
/// Tendon's publishers are skipped: links deliver them, or an event says why not.
///
/// Owns:    its declarations at Zenoh; at most `most_samples` waiting ones, of
///          kMaxPlainWaitingBytes together: newer ones replace the oldest.
/// Threads: thread-safe; take() by one at a time.
/// Errors:  those of ZenohPort. Faulty messages of strangers, and replaced ones, are counted, and
///          reported once a key; a delete is reported once, until something is put on its key
///          again. Reports cover kMaxAnnouncements keys at most.
/// Blocks:  close(): for a callback that runs.
/// Cost:    take(): one copy of the sample.
class PlainInbox : public std::enable_shared_from_this<PlainInbox> {
 public:
  using Wanted = PlainWanted;
  using Counts = PlainCounts;
  /// Both are called by any thread, under no lock.
  struct Told {
    std::function<void()> on_came;
    std::function<void(FabricEvent)> on_event;
  };
  PlainInbox(Wanted wanted, Told told) : wanted_(std::move(wanted)), told_(std::move(told)) {}

  /// Starts listening.
  [[nodiscard]] Result<void> listen(ZenohPort& zenoh) TENDON_EXCLUDES(mutex_);
  /// Reads only samples that waited at the call.
  [[nodiscard]] std::optional<Sample> take() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Counts counts() const TENDON_EXCLUDES(mutex_);
  /// Drops waiting samples. Idempotent.
  void close() TENDON_EXCLUDES(mutex_);

 private:
  struct Waiting {
    ZenohMessage message;
    std::uint64_t stamp = 0;
  };

  void on_message(const ZenohMessage& message) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<bool> may_wait(const ZenohMessage& message) const;
  [[nodiscard]] std::optional<Waiting> next() TENDON_EXCLUDES(mutex_);
  void note_deleted(const std::string& key) TENDON_EXCLUDES(mutex_);
  /// Counts messages on this key that found no room, here or before.
  void drop(std::string_view key, std::uint64_t count) TENDON_EXCLUDES(mutex_);
  void refuse(const std::string& key, const Error& why) TENDON_EXCLUDES(mutex_);
  /// True if nothing of this kind was reported for the key yet, and it may be.
  [[nodiscard]] bool is_first(FabricEventKind kind, std::string_view key) TENDON_REQUIRES(mutex_);

  const Wanted wanted_;
  const Told told_;
  mutable Mutex mutex_;
  ZenohPort::Handle declared_ TENDON_GUARDED_BY(mutex_);
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  std::deque<Waiting> waiting_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t waiting_bytes_ TENDON_GUARDED_BY(mutex_) = 0;
  Counts counts_ TENDON_GUARDED_BY(mutex_);
  std::set<std::pair<FabricEventKind, std::string>> told_keys_ TENDON_GUARDED_BY(mutex_);
  std::set<std::string> deleted_ TENDON_GUARDED_BY(mutex_);  // and not put since
};

}  // namespace tendon::v0::detail
