// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "fabric/topics/stream.hpp"
#include "fabric/topics/stream_changes.hpp"

namespace tendon::v0::detail {

/// Versions that rise with each change that a receiver has to handle.
struct StreamVersions {
  std::atomic<std::uint64_t> receiving{0};  ///< of links, and of ends to be delivered
  std::atomic<std::uint64_t> entries{0};
};

/// A receiver's state from one receive to the next: reading it takes no lock and counts no
/// reference.
///
/// Owns:    shares of links and of an entry. They may be the last ones: no lock is held when the
///          result of take() ends.
/// Threads: the receiver alone.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a comparison.
class ReceiverTurn {
 public:
  struct Kept {
    std::shared_ptr<const StreamLinks> links;
    std::shared_ptr<const StreamEntry> last;
  };

  /// Calls `read()` if the links are not those of this version. The result may be newer: then the
  /// version changes at once, or has changed.
  template <class F>
  [[nodiscard]] const StreamLinks& links_at(std::uint64_t version, F read) {
    if (kept_.links == nullptr || links_version_ != version) {
      kept_.links = read();
      links_version_ = version;
    }
    return *kept_.links;
  }
  /// Notes that `entry`, as it was at this version, had the last sample.
  void note_last(std::shared_ptr<const StreamEntry> entry, std::uint64_t version) {
    kept_.last = std::move(entry);
    last_version_ = version;
  }
  [[nodiscard]] bool is_last_of(const StreamVersions& versions) const {
    return last_version_ == versions.entries.load();
  }
  void forget_last() { kept_.last = nullptr; }
  /// Null: none is kept.
  [[nodiscard]] const std::shared_ptr<const StreamEntry>& last() const noexcept {
    return kept_.last;
  }
  [[nodiscard]] Kept take() { return std::exchange(kept_, {}); }

  /// The versions of the kept parts, for a comparison when another thread may have this already.
  struct Seen {
    bool has_links = false;
    bool has_last = false;
    std::uint64_t links_version = 0;
    std::uint64_t last_version = 0;
    [[nodiscard]] bool is_old(const StreamVersions& versions) const {
      return (has_links && links_version != versions.receiving.load()) ||
             (has_last && last_version != versions.entries.load());
    }
  };
  [[nodiscard]] Seen seen() const {
    return {kept_.links != nullptr, kept_.last != nullptr, links_version_, last_version_};
  }

  std::size_t feeds_first = 0;    ///< before plain peers have their turn
  std::uint64_t taken_count = 0;  ///< all samples that were taken
  bool more = false;              ///< the feed of last() has more, and is not in the queue

 private:
  Kept kept_;
  std::uint64_t links_version_ = 0;
  std::uint64_t last_version_ = 0;
};

}  // namespace tendon::v0::detail
