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

#include "channel/receive_window.hpp"
#include "channel/sample_sender.hpp"
#include "fabric/discovery.hpp"
#include "transport/message_sink.hpp"

namespace tendon::v0::detail {

/// A word, by its tag: of a key, that it is announced from now on, or not any more; or without one,
/// that all that was announced before the pipe has been said.
enum class DiscoveryWord : std::uint8_t { came, went, said_all };

/// One pipe of purpose `discovery`: each side tells what it announces and withdraws, in order, and
/// keeps what the other one has announced.
///
/// Owns:    the words that wait to be sent; the keys of the peer, kMaxAnnouncements at most.
/// Threads: thread-safe. Its locks come after the link's receive lock.
/// Errors:  a peer that breaks the rules is told, and heard no more.
/// Blocks:  never.
/// Cost:    of a word: a lock, and a message.
class DiscoveryChannel final : public MessageSink,
                               public std::enable_shared_from_this<DiscoveryChannel> {
 public:
  /// `on_change` is called under the link's receive lock when the peer's keys have changed;
  /// `on_over`, so too and once, when the channel is over.
  struct Observer {
    std::function<void()> on_change;
    std::function<void()> on_over;
  };
  [[nodiscard]] static std::shared_ptr<DiscoveryChannel> create(
      const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
      std::uint32_t pipe, Observer observer);
  DiscoveryChannel(const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
                   std::uint32_t pipe, Observer observer);

  [[nodiscard]] Link& link() const noexcept { return channel_->link(); }
  /// A word for the peer, behind those that were put before; flush() follows, without a lock that
  /// is taken here.
  void put(DiscoveryWord word, std::string key);
  /// Sends what can leave now. The rest goes on with the Context.
  void flush();
  /// The peer's keys; none when the channel is over.
  [[nodiscard]] std::set<std::string> keys() const;
  /// Has the peer said all that it announced before?
  [[nodiscard]] Picture picture() const;
  [[nodiscard]] bool is_over() const;
  /// Says the end, and gives the pipe back.
  void close();

  // MessageSink
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor& descriptor) override;
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error& error) override;

 private:
  using Word = std::pair<DiscoveryWord, std::string>;
  [[nodiscard]] Result<void> take(const Incoming& incoming);
  void end();

  const std::uint32_t pipe_;
  const Observer observer_;
  const std::shared_ptr<SampleChannel> channel_;
  std::shared_ptr<SampleSender> sender_;
  ReceiveWindow window_ TENDON_GUARDED_BY(link().receive_mutex());
  mutable Mutex mutex_;
  std::deque<Word> words_ TENDON_GUARDED_BY(mutex_);
  std::set<std::string> keys_ TENDON_GUARDED_BY(mutex_);
  Picture picture_ TENDON_GUARDED_BY(mutex_) = Picture::incomplete;
  bool over_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
