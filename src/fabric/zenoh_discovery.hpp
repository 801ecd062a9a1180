// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "fabric/discovery.hpp"
#include "fabric/zenoh_port.hpp"

namespace tendon::v0::detail {

/// Discovery by Zenoh: announcements are its liveliness tokens, so that routers send a token only
/// to those that follow it.
///
///   follow() -> incomplete -> complete     all that was there has been told
///               incomplete -> incomplete   the time for it was over: asked again
///   complete -> incomplete                 the session is down: nothing of others is known. All is
///                                          followed anew when it is up
///
/// Owns:    a share of the session, and what it declared; of others kMostKeys keys at most, and
///          kMostKeyBytes of them.
/// Threads: thread-safe. Its lock is never held while something of the session is destroyed, which
///          waits for callbacks.
/// Errors:  those of ZenohPort.
/// Blocks:  the destructor as that of the session.
/// Cost:    of an announcement: a token in the router, and a word to each that follows it.
class ZenohDiscovery final : public Discovery, public std::enable_shared_from_this<ZenohDiscovery> {
 public:
  /// `schedule` runs what it is given later, under no lock.
  [[nodiscard]] static Result<std::shared_ptr<ZenohDiscovery>> create(
      std::shared_ptr<ZenohPort> session, ChangeWatchers::Schedule schedule);
  ZenohDiscovery(std::shared_ptr<ZenohPort> session, ChangeWatchers::Schedule schedule)
      : schedule_(schedule),
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

  /// Keys of others, under all patterns. What comes above it is dropped, and logged once.
  static constexpr std::size_t kMostKeys = 65536;
  static constexpr std::uint64_t kMostKeyBytes = std::uint64_t{16} << 20;

 private:
  using Number = std::uint64_t;
  struct Own {
    std::size_t count = 0;
    ZenohPort::Handle token;
  };
  struct Followed {
    std::size_t count = 0;
    Number number = 0;  // of what was declared: what an earlier watch tells is old
    Picture picture = Picture::incomplete;
    std::set<std::string, std::less<>> keys;
    ZenohPort::Handle watch;
    ZenohPort::Handle request;
  };

  [[nodiscard]] Result<void> open();
  /// Watches, and asks what is there. What `followed` had before has to be destroyed by the caller.
  [[nodiscard]] Result<void> begin(const KeyExpression& pattern, Followed& followed)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> ask(const KeyExpression& pattern, Followed& followed)
      TENDON_REQUIRES(mutex_);
  void ask_again(const KeyExpression& pattern, Number number) TENDON_EXCLUDES(mutex_);
  void begin_again() TENDON_EXCLUDES(mutex_);
  /// The pattern, while what has this number is declared.
  [[nodiscard]] Followed* find(const KeyExpression& pattern, Number number) TENDON_REQUIRES(mutex_);
  void on_token(const KeyExpression& pattern, Number number, TokenChange change,
                std::string_view key) TENDON_EXCLUDES(mutex_);
  void on_end(const KeyExpression& pattern, Number number, Ending ending) TENDON_EXCLUDES(mutex_);
  void on_state(SessionState state) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool has_room(std::size_t size_bytes) TENDON_REQUIRES(mutex_);
  /// Readers hear that they are gone.
  void forget(Followed& followed) TENDON_REQUIRES(mutex_);

  // One answer takes milliseconds; a router that has just begun may say nothing.
  static constexpr std::chrono::seconds kAskFor{2};

  const ChangeWatchers::Schedule schedule_;
  const std::shared_ptr<ChangeWatchers> watchers_;
  const std::shared_ptr<ZenohPort> session_;
  // Behind the session, so that they end before it.
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
  };
  Held held_ TENDON_GUARDED_BY(mutex_);
  const std::shared_ptr<KeySet> keys_ = std::make_shared<KeySet>();
};

}  // namespace tendon::v0::detail
