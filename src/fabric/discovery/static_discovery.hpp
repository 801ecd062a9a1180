// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "fabric/discovery/dial_book.hpp"
#include "fabric/discovery/discovery.hpp"
#include "fabric/discovery/discovery_channel.hpp"
#include "fabric/ways/dialler.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Discovery by a list of addresses: each Context sends its announcements to those with which it
/// has a channel, and receives theirs. Nobody passes on the words of others.
///
/// Following makes no difference: each Context sends all that it announces.
///
/// Words of peers wait at their channel, and are read in turns of DiscoveryTurn, a part of each
/// channel after the other: a talkative peer delays neither the others nor the Context.
///
/// Owns:    this Context's announcements; channels; a dial for each address, as long as it lives.
/// Threads: as Discovery; its lock is taken alone, or inside of a link's receive lock. The lock of
///          turns is taken before all others.
/// Errors:  limit_exceeded; those of Purposes.
/// Blocks:  never; the Dialler's threads do.
/// Cost:    as Discovery.
class StaticDiscovery final : public Discovery,
                              public OpenHandler,
                              public std::enable_shared_from_this<StaticDiscovery> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<StaticDiscovery>> create(
      std::shared_ptr<ContextCore> context, Profile profile, std::shared_ptr<Dialler> dialler);
  StaticDiscovery(std::shared_ptr<ContextCore> context, Profile profile,
                  std::shared_ptr<Dialler> dialler)
      : context_(std::move(context)), profile_(profile), dialler_(std::move(dialler)) {}
  ~StaticDiscovery() override;

  /// Adds the address of another Context; it is dialled until it answers, and again after a loss.
  [[nodiscard]] Result<void> add_peer(const std::string& address);
  /// True if that address was dialled at least once.
  [[nodiscard]] bool has_dialled(const std::string& address) const;
  /// The outcome of the last dial of each dialled address: no error if a node answered.
  [[nodiscard]] std::vector<DialAttempt> tried() const;
  /// Ends all channels and dials.
  void close();

  // Discovery
  [[nodiscard]] Result<void> announce(const KeyExpression& key) override;
  void withdraw(const KeyExpression& key) override;
  [[nodiscard]] Result<void> follow(const KeyExpression&) override { return {}; }
  void unfollow(const KeyExpression&) override {}
  [[nodiscard]] std::shared_ptr<KeyReader> read() override { return keys_->read(); }
  /// Complete when each address was dialled once, and each peer that was reached has said all.
  [[nodiscard]] Picture picture() const override;
  [[nodiscard]] std::uint64_t watch(std::function<void()> on_change) override {
    return watchers_->add(std::move(on_change));
  }
  void unwatch(std::uint64_t number) override { watchers_->remove(number); }

  // OpenHandler
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link, const Descriptor& open,
                                               Bytes said) override;
  void on_context_closed() override {}

 private:
  using Channel = std::shared_ptr<DiscoveryChannel>;
  /// A channel, and the keys of its peer.
  struct Heard {
    Channel channel;
    std::shared_ptr<AnnouncedKeys> keys;
    AnnouncedKeys::Pipe pipe = 0;
    std::string forgotten{};     ///< up to here, when it is over
    bool told_of_limit = false;  ///< that the peer does not hear of all
  };
  [[nodiscard]] Dialler::Outcome dial(const std::string& address, Deadline deadline);
  void note_dialled(const std::string& address);
  void note_outcome(const std::string& address, std::string error);
  /// `address` is dialled again when the channel is over; empty: the peer made it.
  [[nodiscard]] Channel make_channel(const std::shared_ptr<Link>& link, std::uint32_t pipe,
                                     const std::string& address);
  /// Sends it all announcements, and all later changes. Errors: unreachable when this is closed;
  /// limit_exceeded.
  [[nodiscard]] Result<void> add(const Channel& channel);
  void over(const std::weak_ptr<DiscoveryChannel>& channel, const std::string& address);
  void leave(const Channel& channel) TENDON_EXCLUDES(mutex_);
  void tell_all(Heard& heard) TENDON_REQUIRES(mutex_);
  /// False: the peer may be told of no more.
  bool tell(Heard& heard, const std::string& key) TENDON_REQUIRES(mutex_);
  void flush(const std::vector<Heard>& heard);
  void turn_soon();
  /// Reads the words of peers.
  void take_turn() TENDON_EXCLUDES(turning_);
  /// Each returns whether there is more.
  [[nodiscard]] bool forget_some() TENDON_REQUIRES(turning_);
  [[nodiscard]] bool take_some(const std::vector<Heard>& heard) TENDON_REQUIRES(turning_);
  [[nodiscard]] Result<void> take(const Heard& heard, const DiscoveryChannel::Word& word)
      TENDON_REQUIRES(turning_);

  const std::shared_ptr<ContextCore> context_;
  const Profile profile_;
  const std::shared_ptr<Dialler> dialler_;
  const std::shared_ptr<ChangeWatchers> watchers_ =
      std::make_shared<ChangeWatchers>([context = context_](std::function<void()> callback) {
        context->schedule(std::move(callback));
      });
  mutable Mutex mutex_;
  DialBook addresses_ TENDON_GUARDED_BY(mutex_);
  std::map<std::string, std::uint32_t> own_ TENDON_GUARDED_BY(mutex_);  // the number of
                                                                        // announcements
  std::uint64_t own_bytes_ TENDON_GUARDED_BY(mutex_) = 0;
  std::vector<Heard> channels_ TENDON_GUARDED_BY(mutex_);
  std::vector<Heard> leaving_ TENDON_GUARDED_BY(mutex_);  // over, and not forgotten
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  // The announcements of this Context and of all peers; those of peers change only in turns.
  const std::shared_ptr<KeySet> keys_ = std::make_shared<KeySet>();
  std::atomic<bool> turn_is_due_{false};
  Mutex turning_;
};

}  // namespace tendon::v0::detail
