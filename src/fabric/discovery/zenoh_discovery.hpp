// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "fabric/discovery/discovery.hpp"
#include "fabric/discovery/followed_keys.hpp"
#include "fabric/zenoh/zenoh_port.hpp"
#include "runtime/timers.hpp"

namespace tendon::v0::detail {

/// Discovery by Zenoh: announcements are its liveliness tokens, so that routers send a token only
/// to those that follow it.
///
///   follow() -> incomplete -> complete     all existing keys have been reported
///               incomplete -> incomplete   the time for it was over: asked again
///   complete -> incomplete                 the session is down: nothing of others is known. All is
///                                          followed anew when it is up
///   complete -> incomplete                 a flood: keys found no room, and are asked for again
///                                          when there is some; or words were missed, and all is
///                                          followed anew: keys not reported then are removed
///
/// After a flood, or a missing answer, looks have a pause between them that doubles, from
/// kFirstPause to kLastPause, until the picture is complete.
///
/// Owns:    a share of the session, and its declarations; of others kMostKeys keys at most, and
///          kMostKeyBytes of them.
/// Threads: thread-safe. Its lock is never held while a part of the session is destroyed, which
///          waits for callbacks.
/// Errors:  those of ZenohPort.
/// Blocks:  the destructor as that of the session.
/// Cost:    for each announcement: a token in the router, and a word to each follower.
class ZenohDiscovery final : public Discovery,
                             public Timed,
                             public std::enable_shared_from_this<ZenohDiscovery> {
 public:
  /// Calls on_time() at its time, under no lock.
  using AddTimed = std::function<void(Deadline, std::weak_ptr<Timed>)>;
  /// `schedule` runs its argument later, under no lock. Without `add_timed` there is no pause
  /// before a look.
  [[nodiscard]] static Result<std::shared_ptr<ZenohDiscovery>> create(
      std::shared_ptr<ZenohPort> session, ChangeWatchers::Schedule schedule,
      AddTimed add_timed = nullptr);
  ZenohDiscovery(std::shared_ptr<ZenohPort> session, ChangeWatchers::Schedule schedule,
                 AddTimed add_timed)
      : add_timed_(std::move(add_timed)),
        schedule_(schedule),
        watchers_(std::make_shared<ChangeWatchers>(std::move(schedule))),
        session_(std::move(session)) {}

  // Discovery
  [[nodiscard]] Result<void> announce(const KeyExpression& key) override;
  void withdraw(const KeyExpression& key) override;
  [[nodiscard]] Result<void> follow(const KeyExpression& pattern) override;
  void unfollow(const KeyExpression& pattern) override;
  [[nodiscard]] std::shared_ptr<KeyReader> read() override { return keys_->read(); }
  [[nodiscard]] Picture picture() const override;
  [[nodiscard]] std::string absence() const override;
  [[nodiscard]] std::uint64_t watch(std::function<void()> on_change) override {
    return watchers_->add(std::move(on_change));
  }
  void unwatch(std::uint64_t number) override { watchers_->remove(number); }

  // Timed
  void on_time() override TENDON_EXCLUDES(mutex_);

  /// Keys of others, under all patterns. Keys beyond it are dropped, and logged once. When
  /// kRoomToAsk of them and kRoomToAskBytes are free, dropped keys are asked for again.
  static constexpr std::size_t kMostKeys = 65536;
  static constexpr std::uint64_t kMostKeyBytes = std::uint64_t{16} << 20;
  static constexpr std::size_t kRoomToAsk = kMostKeys / 16;
  static constexpr std::uint64_t kRoomToAskBytes = kMostKeyBytes / 16;
  static constexpr std::chrono::milliseconds kFirstPause{100};
  static constexpr std::chrono::milliseconds kLastPause{5000};

 private:
  using Number = std::uint64_t;
  struct Own {
    std::size_t count = 0;
    ZenohPort::Handle token;
  };
  using Followed = FollowedKeys;
  using Keys = Followed::Keys;
  using Missed = Followed::Missed;
  using Next = Followed::Next;

  [[nodiscard]] Result<void> open();
  /// Watches, and asks for the existing keys. The caller destroys the earlier state of `followed`.
  [[nodiscard]] Result<void> begin(const KeyExpression& pattern, Followed& followed)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> ask(const KeyExpression& pattern, Followed& followed)
      TENDON_REQUIRES(mutex_);
  void begin_again() TENDON_EXCLUDES(mutex_);
  /// Calls on_time() after the pause.
  void look_again_later() TENDON_EXCLUDES(mutex_);
  /// The pattern, while the declaration with this number exists.
  [[nodiscard]] Followed* find(const KeyExpression& pattern, Number number) TENDON_REQUIRES(mutex_);
  void on_token(const KeyExpression& pattern, Number number, TokenChange change,
                std::string_view key) TENDON_EXCLUDES(mutex_);
  void on_end(const KeyExpression& pattern, Number number, Ending ending) TENDON_EXCLUDES(mutex_);
  void on_state(SessionState state) TENDON_EXCLUDES(mutex_);
  /// False: it changed nothing.
  [[nodiscard]] bool take(Followed& followed, TokenChange change, std::string_view key)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool has_room(std::size_t size_bytes) TENDON_REQUIRES(mutex_);
  /// True: dropped keys are to be asked for again, because there is room now.
  [[nodiscard]] bool found_room() TENDON_REQUIRES(mutex_);
  /// Forgets one key, which readers hear.
  void forget(Keys& keys, Keys::const_iterator key) TENDON_REQUIRES(mutex_);
  void forget(Keys& keys) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Picture whole_picture() const TENDON_REQUIRES(mutex_);

  // One answer takes milliseconds; a router that has just started may say nothing.
  static constexpr std::chrono::seconds kAskFor{2};

  const AddTimed add_timed_;
  const ChangeWatchers::Schedule schedule_;
  const std::shared_ptr<ChangeWatchers> watchers_;
  const std::shared_ptr<ZenohPort> session_;
  // Declared after the session, so that they end before it.
  ZenohPort::Handle state_;
  mutable Mutex mutex_;
  std::map<KeyExpression, Own> own_ TENDON_GUARDED_BY(mutex_);
  std::map<KeyExpression, Followed> followed_ TENDON_GUARDED_BY(mutex_);
  Number last_number_ TENDON_GUARDED_BY(mutex_) = 0;
  // The keys of all patterns together.
  struct Held {
    std::size_t keys = 0;
    std::uint64_t bytes = 0;
    std::size_t dropped = 0;
    bool wants_room = false;  ///< since a key was dropped
  };
  Held held_ TENDON_GUARDED_BY(mutex_);
  const std::shared_ptr<KeySet> keys_ = std::make_shared<KeySet>();
  bool looks_later_ TENDON_GUARDED_BY(mutex_) = false;  // on_time() will be called
  std::chrono::milliseconds pause_ TENDON_GUARDED_BY(mutex_) = kFirstPause;
};

}  // namespace tendon::v0::detail
