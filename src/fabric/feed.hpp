// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/gap.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/receiver.hpp"
#include "fabric/body_reader.hpp"
#include "fabric/gap_finder.hpp"
#include "fabric/sample_header.hpp"
#include "runtime/context_core.hpp"
#include "transport/message_sink.hpp"

namespace tendon::v0::detail {

/// A publisher as subscribers know it.
struct PublisherId {
  ContextId context;
  std::uint32_t entity = 0;

  friend bool operator==(const PublisherId&, const PublisherId&) = default;
  friend auto operator<=>(const PublisherId&, const PublisherId&) = default;
};

/// What a subscriber takes from one publisher over one link.
///
///   open -> ended    the publisher said its end: what came before it is delivered
///        -> lost     the link is over, or the publisher refused: what came before is delivered
///        -> broken   the publisher broke the protocol: nothing is delivered any more
///
/// Owns:    the receiving half of a channel.
/// Threads: as a sink under the link's receive lock. take() by one thread at a time; the rest at
///          any time.
/// Errors:  said by state() and why().
/// Blocks:  never.
/// Cost:    of a sample: a move; a copy where more than `max_held` are kept.
class Feed final : public MessageSink {
 public:
  enum class State : std::uint8_t { open, ended, lost, broken };
  struct Options {
    Window window;
    std::uint32_t max_held = 0;
    GapFinder::Rate rate = GapFinder::Rate::all;
    /// The last sample that was taken over another link; a sequence of 0: none.
    SampleHeader seen{};
  };
  /// A sample as it came, without the names that its subscriber knows.
  struct Taken {
    SampleHeader header;
    std::uint32_t tag = 0;
    std::optional<GapFinder::Missing> missing;  ///< before it
    std::uint64_t thinned = 0;                  ///< left out by the rate, before it
    std::optional<TensorDict> tensors;
    Storage bytes;
    bool copied = false;  ///< because `max_held` are kept
  };

  /// `on_over` is called once, under the link's receive lock, when nothing more will come.
  Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
       const Options& options, std::function<void()> on_over);

  [[nodiscard]] const std::shared_ptr<Link>& link() const noexcept { return link_; }
  /// The next sample; nothing when none is here now.
  [[nodiscard]] std::optional<Taken> take();
  /// Nothing will come any more, and everything was taken.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] State state() const;
  /// Why it is lost or broken.
  [[nodiscard]] Error why() const;
  /// The last sample that was taken, here or before: where a new one goes on.
  [[nodiscard]] SampleHeader seen() const;
  /// What is missing at the end, which no sample follows.
  [[nodiscard]] GapFinder::Found take_last_gap();
  /// Says the end to the publisher, and drops what waits.
  void close();

  // MessageSink
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor& descriptor) override;
  void on_transfer_ended(const Transfer& transfer) override;
  void on_link_failed(const Error& error) override;

 private:
  struct Message;
  enum class Head : std::uint8_t { nothing, sample };
  [[nodiscard]] Head look() TENDON_REQUIRES(link_->receive_mutex());
  [[nodiscard]] std::optional<Message> next_message();
  [[nodiscard]] Result<Taken> read(Message message);
  void end(State state, Error why) TENDON_REQUIRES(link_->receive_mutex());
  void break_off(State state, Error why) TENDON_EXCLUDES(link_->receive_mutex());

  const std::shared_ptr<ContextCore> context_;
  const std::shared_ptr<Link> link_;
  const std::uint32_t pipe_;
  const std::function<void()> on_over_;
  const BodyReader bodies_;
  ChannelReceiver receiver_ TENDON_GUARDED_BY(link_->receive_mutex());
  GapFinder gaps_ TENDON_GUARDED_BY(link_->receive_mutex());
  SampleHeader seen_ TENDON_GUARDED_BY(link_->receive_mutex());  // or a sequence of 0
  GapFinder::Found last_gap_ TENDON_GUARDED_BY(link_->receive_mutex());
  bool taking_ TENDON_GUARDED_BY(link_->receive_mutex()) = false;       // one left the inbox
  bool untold_slot_ TENDON_GUARDED_BY(link_->receive_mutex()) = false;  // taken since the credit
  State state_ TENDON_GUARDED_BY(link_->receive_mutex()) = State::open;
  std::optional<Error> why_ TENDON_GUARDED_BY(link_->receive_mutex());
};

}  // namespace tendon::v0::detail
