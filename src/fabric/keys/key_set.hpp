// SPDX-License-Identifier: Apache-2.0
// The keys that a way of discovery knows, and their changes since a reader looked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

namespace tendon::v0::detail {

enum class KeyChange : std::uint8_t { came, went };

struct ChangedKey {
  std::string key;
  KeyChange change = KeyChange::came;

  friend bool operator==(const ChangedKey&, const ChangedKey&) = default;
};

/// The reason why not all announcements of a peer are known, or not all of ours are sent to it.
struct AnnouncingTrouble {
  std::string peer;
  Error why;
};

/// The changes of a KeySet that one reader has not taken yet. A removal after an addition, or an
/// addition after a removal, cancels it: so there are never more than the reader and the set know
/// keys.
///
/// Owns:    a copy of each waiting key.
/// Threads: thread-safe; its lock is the last one.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    for each change: a look into a tree.
class KeyReader {
 public:
  /// Takes the oldest changes, at most so many.
  [[nodiscard]] std::vector<ChangedKey> take(std::size_t most) TENDON_EXCLUDES(mutex_);
  /// Takes the troubles since the last call; kMostTroubles at most.
  [[nodiscard]] std::vector<AnnouncingTrouble> take_troubles() TENDON_EXCLUDES(mutex_);

  static constexpr std::size_t kMostTroubles = 64;

 private:
  friend class KeySet;
  using Waiting = std::list<ChangedKey>;
  void note(std::string_view key, KeyChange change) TENDON_EXCLUDES(mutex_);
  void note(const AnnouncingTrouble& trouble) TENDON_EXCLUDES(mutex_);

  Mutex mutex_;
  Waiting waiting_ TENDON_GUARDED_BY(mutex_);
  std::map<std::string_view, Waiting::iterator> places_ TENDON_GUARDED_BY(mutex_);
  std::vector<AnnouncingTrouble> troubles_ TENDON_GUARDED_BY(mutex_);
};

/// Keys, each of which is there while it was added more often than removed.
///
/// Owns:    the keys, once each; not its readers.
/// Threads: thread-safe; its lock is taken only before that of a reader.
/// Errors:  none: the caller of add() has the limits.
/// Blocks:  never.
/// Cost:    for each change: a look into a tree here, and one for each reader.
class KeySet {
 public:
  /// True: it was not there before.
  bool add(std::string_view key) TENDON_EXCLUDES(mutex_);
  /// True: it is not there any more.
  bool remove(std::string_view key) TENDON_EXCLUDES(mutex_);
  /// Reports to each reader.
  void tell(const AnnouncingTrouble& trouble) TENDON_EXCLUDES(mutex_);
  /// Makes a reader whose first changes are all present keys.
  [[nodiscard]] std::shared_ptr<KeyReader> read() TENDON_EXCLUDES(mutex_);

 private:
  void note(std::string_view key, KeyChange change) TENDON_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, std::uint32_t, std::less<>> keys_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<KeyReader>> readers_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
