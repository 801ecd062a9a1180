// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "channel/sample_channel.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Shows samples on many channels and waits for none. Bytes that a socket did not take leave when
/// it has room. A publisher that was told `closed` is told when to try again. Both happen on
/// whichever thread makes progress for the Context.
///
/// Owns:    shares of the channels that are closed or have a sample under way, until remove().
/// Threads: thread-safe. Its lock is taken after a link's receive lock, and before that of
///          Publishing and a link's sending lock.
/// Errors:  those of the link, for each channel apart.
/// Blocks:  while another thread's round lasts, which waits for no peer.
/// Cost:    a lock and a full barrier for each round, and the cost of its link for each channel.
class Fanout final : public Work, public std::enable_shared_from_this<Fanout> {
 public:
  /// `on_room`: closed channels may have room again. Called under no lock of this class, by one
  /// thread at a time, inside any call that makes progress: it shows and returns.
  Fanout(std::shared_ptr<ContextCore> context, std::function<void()> on_room)
      : context_(std::move(context)), on_room_(std::move(on_room)) {}

  /// Shows samples on any number of channels. Peers see them when the round ends: first all rings,
  /// then one barrier, then the doorbells.
  class TENDON_SCOPED_LOCKABLE Round {
   public:
    explicit Round(Fanout& sender) TENDON_ACQUIRES(sender.mutex_) : sender_(sender) {
      sender.mutex_.lock();
    }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;
    ~Round() TENDON_RELEASES();

    /// The channel lives until remove().
    [[nodiscard]] Result<Shown> show(const std::shared_ptr<SampleChannel>& channel,
                                     const SharedMessage& sample, std::uint32_t tag = 0,
                                     std::uint64_t share_bytes = PublishPool::kWholeShare,
                                     LentSample::Keeps keeps = LentSample::Keeps::until_sent);
    /// True if the sample under way was dropped; reported once.
    [[nodiscard]] bool was_dropped(SampleChannel& channel) {
      sender_.mutex_.assert_held();
      return channel.was_dropped();
    }
    /// Stops waiting for this reader: a sample under way is kept only once it is begun.
    void wait_no_more(SampleChannel& channel) {
      sender_.mutex_.assert_held();
      channel.wait_no_more();
    }
    /// True if the shown sample has left, or failed.
    [[nodiscard]] bool is_idle(SampleChannel& channel) {
      sender_.mutex_.assert_held();
      const auto gone = channel.go_on();
      return !gone || *gone == Sent::done;
    }

   private:
    Fanout& sender_;
  };

  /// Forgets a channel that is over, by this side or by its link, whose receive lock may be held.
  /// Its sample is released.
  void remove(const std::shared_ptr<SampleChannel>& channel) TENDON_EXCLUDES(mutex_);

  // Work
  bool progress() override TENDON_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<ContextCore> context_;
  const std::function<void()> on_room_;
  Mutex mutex_;
  std::vector<Link*> to_ring_ TENDON_GUARDED_BY(mutex_);  // of the round
  // Channels that are closed or have a sample under way.
  std::vector<std::shared_ptr<SampleChannel>> waiting_ TENDON_GUARDED_BY(mutex_);
  bool listed_ TENDON_GUARDED_BY(mutex_) = false;  // as Work, while there is one
};

}  // namespace tendon::v0::detail
