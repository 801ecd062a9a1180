// SPDX-License-Identifier: Apache-2.0
// Announcements between two Contexts, without a discovery service: docs/protocol.md, "Discovery".
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "channel/channel.hpp"
#include "channel/fanout.hpp"
#include "fabric/discovery/discovery.hpp"
#include "fabric/keys/announced_keys.hpp"

namespace tendon::v0::detail {

/// A word, by its tag: a key is announced from now on, or not any more; or, without a key, all
/// earlier announcements have been said.
enum class DiscoveryWord : std::uint8_t { came, went, said_all };

/// One pipe of purpose `discovery`: each side sends its announcements and withdrawals, in order.
/// The peer's words wait here, within the window, until the owner takes them.
///
/// Owns:    unsent words; its channel, with untaken words.
/// Threads: thread-safe. Its lock is taken after the link's receive lock.
/// Errors:  a peer that breaks the rules is told, and not heard any more.
/// Blocks:  never.
/// Cost:    a lock and a message for each word.
class DiscoveryChannel final : public ChannelEvents,
                               public std::enable_shared_from_this<DiscoveryChannel> {
 public:
  using Word = std::pair<DiscoveryWord, std::string>;
  /// `on_words` is called under the link's receive lock when there is something to take; `on_over`,
  /// under it or not and once, when the channel is over.
  struct Observer {
    std::function<void()> on_words;
    std::function<void()> on_over;
  };
  [[nodiscard]] static std::shared_ptr<DiscoveryChannel> create(
      const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
      std::uint32_t pipe, Observer observer);
  DiscoveryChannel(const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
                   std::uint32_t pipe, Observer observer);

  [[nodiscard]] Link& link() const noexcept { return channel_.link(); }
  [[nodiscard]] std::shared_ptr<MessageSink> sink() {
    return Channel::sink_of(shared_from_this(), channel_);
  }

  // Words of this side. flush() follows, without a lock that is taken here.
  /// Announces a key after all earlier words; one that is announced already stays as it is. Errors:
  /// limit_exceeded, if the peer's older protocol allows no more.
  [[nodiscard]] Result<void> put_came(const std::string& key);
  /// Withdraws it. True: there is room again for one that was left out.
  bool put_went(const std::string& key);
  void put_said_all() { put({DiscoveryWord::said_all, {}}); }
  /// Sends as much as can leave now. The Context continues with the rest.
  void flush();

  // Words of the peer
  /// Takes the first words, at most so many; the peer may send as many more.
  [[nodiscard]] std::vector<Word> take(std::size_t most);
  /// Ends the channel because the peer broke a rule; the peer hears why.
  void refuse(const Error& why);
  /// Notes that the peer has said all its earlier announcements.
  void note_complete();
  [[nodiscard]] Picture picture() const;

  [[nodiscard]] bool is_over() const { return !channel_.is_open(); }
  /// Says the end, and returns the pipe.
  void close();

  // ChannelEvents
  void on_arrived() override;
  void on_room() override { flush(); }
  void on_over() override;

 private:
  [[nodiscard]] Result<Word> read(const Incoming& incoming) const;
  void put(Word word);
  void drop_words();

  const Observer observer_;
  const AnnouncingLimits limits_;
  const std::shared_ptr<SampleChannel> out_;
  Channel channel_;
  std::shared_ptr<Fanout> sender_;
  mutable Mutex mutex_;
  std::deque<Word> words_ TENDON_GUARDED_BY(mutex_);  // unsent
  // The keys that a peer of an older protocol knows, which may not be all.
  struct Told {
    std::set<std::string> keys;
    std::uint64_t bytes = 0;
    bool left_out = false;
  };
  Told told_ TENDON_GUARDED_BY(mutex_);
  Picture picture_ TENDON_GUARDED_BY(mutex_) = Picture::incomplete;
};

}  // namespace tendon::v0::detail
