// SPDX-License-Identifier: Apache-2.0
// One sample on many channels: all rings before the doorbells, and nobody waits for a closed
// channel.
#include "channel/fanout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/peerless_link.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using detail::ContextCore;
using detail::Descriptor;
using detail::Fanout;
using detail::Incoming;
using detail::Link;
using detail::MessageKind;
using detail::PublishedSlot;
using detail::SampleChannel;
using detail::SharedMessage;
using detail::Shown;
using detail::Window;

constexpr std::uint32_t kPipe = 9;                         // besides the pair's own
constexpr std::uint64_t kLarge = std::uint64_t{64} << 20;  // more than any socket takes at once

/// Counts the messages that arrive on a pipe, and applies credit to `credited`.
class Sink final : public detail::MessageSink {
 public:
  void on_message(Incoming&& incoming) override {
    const std::lock_guard lock(mutex_);
    if (incoming.descriptor.kind == MessageKind::credit && credited != nullptr)
      credited->window().on_credit(incoming.descriptor);
    else
      take(std::move(incoming));
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const detail::Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    (transfer.aborted ? aborted_ : completed_) += 1;
  }
  void on_link_failed(const Error&) override {
    if (sender != nullptr) sender->remove(credited);
  }

  [[nodiscard]] std::vector<MessageKind> kinds() {
    const std::lock_guard lock(mutex_);
    std::vector<MessageKind> kinds;
    for (const Incoming& incoming : received_) kinds.push_back(incoming.descriptor.kind);
    return kinds;
  }
  [[nodiscard]] std::vector<std::uint32_t> tags() {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> tags;
    for (const Incoming& incoming : received_) tags.push_back(incoming.descriptor.tag);
    return tags;
  }
  [[nodiscard]] std::size_t count() { return kinds().size(); }
  [[nodiscard]] int completed() {
    const std::lock_guard lock(mutex_);
    return completed_;
  }
  [[nodiscard]] int aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  /// The last byte of the first body. The link's receive lock is held.
  [[nodiscard]] std::byte last_byte() {
    const std::lock_guard lock(mutex_);
    Incoming& first = received_.front();
    EXPECT_TRUE(first.arrived());
    return first.body.data[first.descriptor.body_bytes() - 1];
  }
  /// The link's receive lock is held.
  void drop() {
    const std::lock_guard lock(mutex_);
    received_.clear();
  }

  std::shared_ptr<SampleChannel> credited;
  std::shared_ptr<Fanout> sender;
  std::atomic<bool> keeps{true};  // whether it keeps arrived messages

 private:
  void take(Incoming&& incoming) {
    if (keeps) {
      received_.push_back(std::move(incoming));
    } else if (incoming.arrived()) {
      ++completed_;
    }
  }

  std::mutex mutex_;
  std::vector<Incoming> received_;
  int completed_ = 0;
  int aborted_ = 0;
};

SharedMessage raw_sample(std::shared_ptr<const PublishedSlot> slot, Bytes body) {
  SharedMessage sample;
  sample.descriptor.kind = MessageKind::bytes;
  sample.descriptor.payload_bytes = body.size();
  sample.body = body;
  sample.slot = std::move(slot);
  return sample;
}

// Over links without a peer

class LoggedLink final : public PeerlessLink {
 public:
  LoggedLink(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  Result<detail::Sent> prepare(detail::SendOp& op, Deadline deadline) override {
    log_.push_back("prepare " + name_);
    return send(op, deadline);
  }
  void show() override { log_.push_back("show " + name_); }
  void ring_behind_barrier() noexcept override { log_.push_back("ring " + name_); }

 private:
  const std::string name_;
  std::vector<std::string>& log_;
};

class SampleRound : public testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<SampleChannel> channel(const std::shared_ptr<Link>& link,
                                                       Window window = {}) const {
    return std::make_shared<SampleChannel>(*core_, link, kPipe, window);
  }
  [[nodiscard]] SharedMessage small() const { return raw_sample(nullptr, as_bytes("sample")); }

  Context context_ = Context::create({.progress = Progress::manual}).value();
  const std::shared_ptr<ContextCore> core_ = ContextCore::of(context_);
  std::vector<std::string> log_;
  int room_ = 0;
  const std::shared_ptr<Fanout> sender_ = std::make_shared<Fanout>(core_, [this] { ++room_; });
  const std::shared_ptr<LoggedLink> a_ = std::make_shared<LoggedLink>("a", log_);
  const std::shared_ptr<LoggedLink> b_ = std::make_shared<LoggedLink>("b", log_);
};

TEST_F(SampleRound, ComesFirstOnAllRingsThenRingsEachLinkOnce) {
  const auto a1 = channel(a_);
  const auto b = channel(b_);
  const auto a2 = channel(a_);
  {
    Fanout::Round round(*sender_);
    for (const auto& each : {a1, b, a2}) EXPECT_EQ(round.show(each, small()).value(), Shown::shown);
  }
  EXPECT_EQ(log_, (std::vector<std::string>{"prepare a", "prepare b", "prepare a", "show a",
                                            "show b", "ring a", "ring b"}));
  EXPECT_EQ(a_->sent, (std::vector<std::uint64_t>{1, 1})) << "each channel has its own numbers";
  context_.progress();
  EXPECT_EQ(room_, 0) << "nobody was closed";
}

TEST_F(SampleRound, OneThatIsClosedKeepsNobodyAndHearsWhenToTryAgain) {
  const auto full = channel(a_);
  const auto in_window = channel(b_, Window::said(1, 1000));
  a_->full = true;
  {
    Fanout::Round round(*sender_);
    EXPECT_EQ(round.show(full, small()).value(), Shown::closed) << "no room on its link";
    EXPECT_EQ(round.show(in_window, small()).value(), Shown::shown);
    EXPECT_EQ(round.show(in_window, small()).value(), Shown::closed) << "its window";
  }
  EXPECT_EQ(b_->sent, (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(a_->waiting_for_returns, 1u) << "the peer is to say when it has made room";
  context_.progress();
  EXPECT_EQ(room_, 1);
  context_.progress();
  EXPECT_EQ(room_, 1) << "the owner did not try again";
  a_->full = false;
  EXPECT_TRUE(in_window->window().on_credit({.sequence = 1, .payload_bytes = 6}));
  {
    Fanout::Round round(*sender_);
    EXPECT_EQ(round.show(full, small(), 3).value(), Shown::shown);
    EXPECT_EQ(round.show(in_window, small()).value(), Shown::shown);
  }
  EXPECT_EQ(a_->sent, (std::vector<std::uint64_t>{1})) << "what was not shown used no number";
  EXPECT_EQ(b_->sent, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(a_->waiting_for_returns, 0u);
}

TEST_F(SampleRound, OneThatFailsIsItsOwnAffair) {
  const auto failing = channel(a_);
  const auto good = channel(b_);
  a_->failure = Error{ErrorCode::peer_lost, "test", "gone"};
  Fanout::Round round(*sender_);
  EXPECT_TRUE(fails_with(round.show(failing, small()), ErrorCode::peer_lost));
  EXPECT_EQ(round.show(good, small()).value(), Shown::shown);
}

TEST_F(SampleRound, APeerThatTakesNoGpusGetsTheOtherSamples) {
  constexpr auto kDevices = static_cast<std::uint64_t>(detail::Feature::devices);
  b_->agree(detail::Features(kDevices), detail::LinkRole::connector);
  const auto older = channel(a_);
  const auto newer = channel(b_);
  SharedMessage host = small();
  host.descriptor.kind = MessageKind::data;
  host.descriptor.layout = Layout::aligned;
  host.schema = Schema::make({{"x", DType::u8, {6}}}).value();
  SharedMessage placed = host;
  placed.placement = std::make_shared<const detail::Placement>(detail::Placement{{1}, {}});
  Fanout::Round round(*sender_);
  EXPECT_TRUE(fails_with(round.show(older, placed), ErrorCode::unsupported_device, "is older"));
  EXPECT_TRUE(a_->sent.empty());
  EXPECT_EQ(round.show(older, host).value(), Shown::shown);
  EXPECT_EQ(round.show(newer, placed).value(), Shown::shown);
  EXPECT_EQ(round.show(newer, host).value(), Shown::shown);
  EXPECT_EQ(a_->sent, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(b_->sent, (std::vector<std::uint64_t>{1, 2, 3, 4})) << "two schemas";
}

/// A link that has room for a limited number of words.
class NarrowLink final : public PeerlessLink {
 public:
  Result<detail::Sent> send(detail::SendOp& op, Deadline) override {
    if (failure) return *failure;
    if (room == 0) return detail::Sent::later;
    --room;
    words.push_back(op.descriptor.kind);
    schemas.push_back(op.descriptor.schema);
    return detail::Sent::done;
  }
  int room = 0;
  std::vector<MessageKind> words;
  std::vector<std::uint32_t> schemas;
};

class SampleSchemas : public SampleRound {
 protected:
  // No other sample has this shape.
  [[nodiscard]] SharedMessage sample(std::int64_t size) {
    const auto schema = Schema::make({{"x", DType::u8, {size}}}).value();
    SharedMessage sample = raw_sample(nullptr, Bytes(memory_).first(static_cast<size_t>(size)));
    sample.descriptor.kind = MessageKind::data;
    sample.descriptor.layout = Layout::aligned;
    sample.schema = schema;
    return sample;
  }
  Shown show(const SharedMessage& sample) {
    Fanout::Round round(*sender_);
    return round.show(channel_, sample).value();
  }

  std::array<std::byte, 64> memory_{};
  const std::shared_ptr<NarrowLink> link_ = std::make_shared<NarrowLink>();
  const std::shared_ptr<SampleChannel> channel_ = channel(link_, Window::said(2, 1000));
};

TEST_F(SampleSchemas, AClosedWindowAnnouncesNothing) {
  link_->room = 100;
  EXPECT_EQ(show(sample(1)), Shown::shown);
  EXPECT_EQ(show(sample(2)), Shown::shown);
  for (std::int64_t size = 3; size < 20; ++size) EXPECT_EQ(show(sample(size)), Shown::closed);
  EXPECT_EQ(link_->words, (std::vector<MessageKind>{MessageKind::schema, MessageKind::data,
                                                    MessageKind::schema, MessageKind::data}));
}

TEST_F(SampleSchemas, AMessageWhoseSchemaWasAnnouncedIsTheNextToGo) {
  link_->room = 1;
  EXPECT_EQ(show(sample(1)), Shown::under_way) << "its schema has gone, and there is no more room";
  memory_.fill(std::byte{9});  // the channel has all that it needs
  for (std::int64_t size = 2; size < 20; ++size) EXPECT_EQ(show(sample(size)), Shown::closed);
  EXPECT_EQ(link_->words, std::vector<MessageKind>{MessageKind::schema});
  context_.progress();
  EXPECT_EQ(room_, 0) << "it has not gone";
  link_->room = 100;
  context_.progress();
  EXPECT_EQ(link_->words, (std::vector<MessageKind>{MessageKind::schema, MessageKind::data}));
  EXPECT_EQ(link_->schemas, (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(room_, 1);
  EXPECT_EQ(show(sample(2)), Shown::shown);
  EXPECT_EQ(channel_->window().untaken_messages(), 2u);
}

TEST_F(SampleSchemas, NothingFollowsAnAnnouncedMessageThatCannotGo) {
  link_->room = 1;
  EXPECT_EQ(show(sample(1)), Shown::under_way);
  link_->failure = Error{ErrorCode::system, "test", "no memory"};
  context_.progress();
  EXPECT_EQ(room_, 1);
  Fanout::Round round(*sender_);
  EXPECT_TRUE(fails_with(round.show(channel_, sample(2)), ErrorCode::system, "no memory"));
  EXPECT_EQ(link_->words, std::vector<MessageKind>{MessageKind::schema});
}

TEST_F(SampleSchemas, AMessageThatNoLinkTakesAnnouncesNothing) {
  link_->room = 100;
  SharedMessage large = sample(1);
  large.descriptor.payload_bytes = (1 << 20) + 1;
  Fanout::Round round(*sender_);
  EXPECT_TRUE(fails_with(round.show(channel_, large), ErrorCode::message_too_large, "link_cap"));
  EXPECT_TRUE(link_->words.empty());
}

/// A link over sockets that takes small words, and treats lent memory as the test says.
class LendingLink final : public PeerlessLink {
 public:
  Result<detail::Sent> send(detail::SendOp& op, Deadline) override {
    if (op.lent == nullptr || then == Then::goes) return detail::Sent::done;
    if (then == Then::waits) return detail::Sent::later;
    op.dropped = true;
    return detail::Sent::done;
  }
  enum class Then { waits, dropped, goes } then = Then::waits;
};

// The peer accepts a few more schemas than messages, and no more.
TEST_F(SampleSchemas, SoManyMayBeAnnouncedForNothing) {
  using Then = LendingLink::Then;
  constexpr std::uint32_t kMost = detail::ChannelSender::kMostStranded;
  const auto link = std::make_shared<LendingLink>();
  const auto lending = channel(link);
  const auto show_one_of = [&](std::int64_t size, Then then) {
    const auto schema = Schema::make({{"x", DType::u8, {size}}}).value();
    auto slot = core_->publishing().acquire(static_cast<std::uint64_t>(size)).value();
    const Bytes body = slot->memory().first(schema->layout(Layout::aligned).total_bytes);
    SharedMessage sample = raw_sample(std::move(slot), body);
    sample.descriptor.kind = MessageKind::data;
    sample.descriptor.layout = Layout::aligned;
    sample.schema = schema;
    link->then = then;
    Fanout::Round round(*sender_);
    return round.show(lending, sample, 0, detail::PublishPool::kWholeShare,
                      detail::LentSample::Keeps::once_begun);
  };
  const auto drop = [&] {
    link->then = Then::dropped;
    return Fanout::Round(*sender_).was_dropped(*lending);
  };
  for (std::uint32_t n = 0; n < kMost; ++n) {
    ASSERT_EQ(show_one_of(10'000 + n, Then::waits).value(), Shown::under_way) << n;
    ASSERT_TRUE(drop()) << n;
    EXPECT_EQ(lending->window().untaken_messages(), 0u);
  }
  EXPECT_TRUE(fails_with(show_one_of(20'000, Then::waits), ErrorCode::resource_exhausted,
                         std::to_string(kMost) + " schemas"));
  EXPECT_EQ(show_one_of(10'000, Then::goes).value(), Shown::shown) << "that one is known";
  EXPECT_TRUE(lending->window().on_credit({.sequence = 1, .payload_bytes = 10'000}));
  EXPECT_EQ(show_one_of(20'000, Then::goes).value(), Shown::shown) << "what lay before was read";
  sender_->remove(lending);
}

// Between two Contexts

class SampleSends : public PipeTest {
 protected:
  // The server publishes: its service thread makes progress. The client may have Progress::manual.
  SampleSends()
      : pair_(connect_pair(GetParam(), {.link_cap_bytes = 2 * kLarge},
                           {.link_cap_bytes = 2 * kLarge, .publish_bytes = 8 * kLarge})) {
    const auto attach = [](Link& link, std::shared_ptr<Sink> sink) {
      const detail::Lock receiving(link.receive_mutex());
      link.attach(kPipe, std::move(sink));
    };
    channel_ = std::make_shared<SampleChannel>(*core(), link(), kPipe, Window::said(4, 2 * kLarge));
    credits_->credited = channel_;
    attach(*link(), credits_);
    attach(*client_link(), sink_);
  }
  ~SampleSends() override { sender_->remove(channel_); }

  [[nodiscard]] const std::shared_ptr<ContextCore>& core() const {
    return ContextCore::of(pair_.server_context);
  }
  [[nodiscard]] std::shared_ptr<Link> link() const { return core()->links().all()->front(); }
  [[nodiscard]] std::shared_ptr<Link> client_link() const {
    return ContextCore::of(pair_.client_context)->links().all()->front();
  }
  [[nodiscard]] SharedMessage sample_of(std::uint64_t size_bytes) const {
    auto slot = core()->publishing().acquire(size_bytes).value();
    const MutableBytes body = slot->memory().first(size_bytes);
    std::memset(body.data(), 7, body.size());
    return raw_sample(std::move(slot), body);
  }
  Result<Shown> show(const SharedMessage& sample, std::uint32_t tag = 0) {
    Fanout::Round round(*sender_);
    return round.show(channel_, sample, tag);
  }
  [[nodiscard]] std::uint64_t slots_in_use() const {
    return core()->publishing().pool()->stats().slots.loaned_count;
  }
  void drive_client() {
    if (GetParam().client_progress == Progress::manual)
      pair_.client_context.progress();
    else
      std::this_thread::yield();
  }

  // Behaves like a publisher whose reader is behind.
  void catch_up() {
    ++room_;
    while (behind_ > 0 && show(small()).value() == Shown::shown) --behind_;
  }
  [[nodiscard]] static SharedMessage small() { return raw_sample(nullptr, as_bytes("small")); }

  std::atomic<int> room_{0};
  std::atomic<int> behind_{0};
  PipePair pair_;
  const std::shared_ptr<Fanout> sender_ = std::make_shared<Fanout>(core(), [this] { catch_up(); });
  std::shared_ptr<SampleChannel> channel_;
  const std::shared_ptr<Sink> credits_ = std::make_shared<Sink>();
  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

class SampleSend : public SampleSends {};
TENDON_ON_EVERY_WAY(SampleSend);

TEST_P(SampleSend, ASchemaGoesOnceBeforeItsSamples) {
  const auto schema = Schema::make({{"x", DType::u8, {100'000}}}).value();
  SharedMessage sample = sample_of(schema->layout(Layout::aligned).total_bytes);
  sample.descriptor.kind = MessageKind::data;
  sample.descriptor.layout = Layout::aligned;
  sample.schema = schema;
  for (std::uint32_t n = 0; n < 2; ++n) {
    ASSERT_TRUE(eventually([&] { return show(sample, n).value() != Shown::closed; },
                           [&] { drive_client(); }));
  }
  ASSERT_TRUE(eventually([&] { return sink_->count() == 3; }, [&] { drive_client(); }));
  EXPECT_EQ(sink_->kinds(),
            (std::vector<MessageKind>{MessageKind::schema, MessageKind::data, MessageKind::data}));
  EXPECT_EQ(sink_->tags().back(), 1u);
}

TEST_P(SampleSend, ACreditLetsAClosedChannelGoOnWithoutAThreadThatWaits) {
  for (int n = 0; n < 4; ++n) ASSERT_EQ(show(small()).value(), Shown::shown);
  behind_ = 2;
  EXPECT_EQ(show(small()).value(), Shown::closed);
  ASSERT_TRUE(eventually([&] { return sink_->count() == 4; }, [&] { drive_client(); }));
  EXPECT_EQ(behind_, 2);
  client_link()->post(
      {.kind = MessageKind::credit, .pipe = kPipe, .sequence = 2, .payload_bytes = 10});
  ASSERT_TRUE(eventually([&] { return sink_->count() == 6; }, [&] { drive_client(); }));
  EXPECT_EQ(show(small()).value(), Shown::closed) << "the credit was for two";
}

TEST_P(SampleSend, TheSlotIsFreeWhenNobodyReadsItAnyMore) {
  ASSERT_NE(show(sample_of(100'000)).value(), Shown::closed);
  ASSERT_TRUE(eventually([&] { return sink_->count() == 1; }, [&] { drive_client(); }));
  ASSERT_TRUE(eventually(
      [&] {
        {
          const detail::Lock receiving(client_link()->receive_mutex());
          sink_->drop();
        }
        (void)core()->links().collect_returns(detail::LinkTable::Of::all);
        return slots_in_use() == 0;
      },
      [&] { drive_client(); }));
}

TEST_P(SampleSend, ManyThreadsMayShowWhileOthersGoOn) {
  constexpr int kEach = 100;
  sink_->keeps = false;
  channel_ = std::make_shared<SampleChannel>(*core(), link(), kPipe,
                                             Window::said(10 * kEach, std::uint64_t{1} << 40));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([this] {
        for (int n = 0; n < kEach; ++n) {
          const SharedMessage sample = sample_of(100'000);
          EXPECT_TRUE(eventually([&] { return show(sample).value() != Shown::closed; },
                                 [&] { std::this_thread::yield(); }));
        }
      });
    }
    ASSERT_TRUE(
        eventually([&] { return sink_->completed() == 2 * kEach; }, [&] { drive_client(); }));
  }
  ASSERT_TRUE(eventually([&] {
    (void)core()->links().collect_returns(detail::LinkTable::Of::all);
    return slots_in_use() == 0;
  }));
}

/// A further client of the server's Context, which makes progress only when a test says so.
struct OtherClient {
  explicit OtherClient(PipePair& pair)
      : pipe(Pipe::connect(context, pair.listener.address(), kPatience).value()),
        accepted(pair.listener.accept(kPatience).value()) {
    for (const auto& other : *ContextCore::of(pair.server_context)->links().all())
      if (other->peer().context == context.id()) link = other;
    const auto own = ContextCore::of(context)->links().all()->front();
    const detail::Lock receiving(own->receive_mutex());
    own->attach(kPipe, sink);
  }

  Context context = Context::create({.name = "other",
                                     .progress = Progress::manual,
                                     .transport = Transport::tcp,
                                     .link_cap_bytes = 2 * kLarge,
                                     .lease = kLongLease})
                        .value();
  Pipe pipe;
  Pipe accepted;
  std::shared_ptr<Link> link;  // the server's
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  std::shared_ptr<SampleChannel> channel;
};

/// Sends to a client that makes progress only when the test says so.
class SampleUnderWay : public SampleSends {
 protected:
  using Keeps = detail::LentSample::Keeps;
  static constexpr std::uint64_t kWhole = detail::PublishPool::kWholeShare;
  static constexpr std::uint32_t kOtherPipe = kPipe + 2;

  SampleUnderWay() {
    const detail::Lock receiving(client_link()->receive_mutex());
    client_link()->attach(kOtherPipe, others_);
  }
  ~SampleUnderWay() override { sender_->remove(behind_it_); }

  void begin() {
    ASSERT_EQ(show(sample_of(kLarge)).value(), Shown::under_way);
    ASSERT_EQ(slots_in_use(), 1u) << "nobody but the channel has a share";
  }
  /// Shows a sample on a further channel; the test keeps no share of the sample.
  void show_behind(Keeps keeps) {
    Fanout::Round round(*sender_);
    ASSERT_NE(round.show(behind_it_, sample_of(100'000), 0, kWhole, keeps).value(), Shown::closed);
  }
  [[nodiscard]] bool was_dropped() { return Fanout::Round(*sender_).was_dropped(*behind_it_); }

  const std::shared_ptr<Sink> others_ = std::make_shared<Sink>();
  const std::shared_ptr<SampleChannel> behind_it_ =
      std::make_shared<SampleChannel>(*core(), link(), kOtherPipe, Window::said(4, 2 * kLarge));
};
INSTANTIATE_TEST_SUITE_P(Ways, SampleUnderWay, testing::Values(kTcpManual), way_name);

TEST_P(SampleUnderWay, WhatTheSocketDidNotTakeGoesOnWithItsSlotHeld) {
  begin();
  EXPECT_EQ(show(small()).value(), Shown::closed);
  // No thread calls anything here: the service thread sends the rest, and releases the slot.
  ASSERT_TRUE(eventually([&] { return sink_->completed() == 1; }, [&] { drive_client(); }));
  {
    const detail::Lock receiving(client_link()->receive_mutex());
    EXPECT_EQ(sink_->last_byte(), std::byte{7});
  }
  ASSERT_TRUE(eventually([&] { return slots_in_use() == 0; }));
  ASSERT_TRUE(eventually([&] { return room_ != 0; }));
  EXPECT_EQ(channel_->window().untaken_messages(), 1u);
  EXPECT_EQ(show(small()).value(), Shown::shown);
}

// The readers hold all slots that they may hold, so a sample that needs one more is copied.
TEST_P(SampleUnderWay, WhatTheSocketDidNotTakeLeavesTheOwnerItsSlots) {
  const auto pool = core()->publishing().pool();
  constexpr std::uint64_t kKept = 6;  // of eight
  for (std::uint64_t i = 0; i < kKept; ++i) {
    const auto slot = core()->publishing().acquire(kLarge).value();
    ASSERT_EQ(pool->give(pool->add_link("keeper", 1), *slot), detail::PublishPool::Window::open);
  }
  ASSERT_EQ(show(sample_of(kLarge)).value(), Shown::under_way);
  EXPECT_EQ(slots_in_use(), kKept) << "none is kept for it";
  ASSERT_TRUE(eventually([&] { return sink_->completed() == 1; }, [&] { drive_client(); }));
  const detail::Lock receiving(client_link()->receive_mutex());
  EXPECT_EQ(sink_->last_byte(), std::byte{7});
}

// The sample is behind another one that the socket takes no more of.
TEST_P(SampleUnderWay, WhatTheSocketHasNotBegunHoldsNothing) {
  begin();
  show_behind(Keeps::once_begun);
  EXPECT_EQ(slots_in_use(), 1u) << "that of the one before";
  EXPECT_FALSE(was_dropped()) << "its turn has not come";
  EXPECT_EQ(behind_it_->window().untaken_messages(), 1u);
  ASSERT_TRUE(eventually([&] { return was_dropped(); }, [&] { drive_client(); }));
  EXPECT_FALSE(was_dropped()) << "said once";
  EXPECT_EQ(behind_it_->window().untaken_messages(), 0u);
  EXPECT_EQ(behind_it_->window().untaken_bytes(), 0u);
  EXPECT_EQ(others_->count(), 0u) << "its reader has heard nothing of it";
  // The next sample is sent.
  const SharedMessage next = sample_of(100'000);
  Fanout::Round(*sender_).show(behind_it_, next, 0, kWhole, Keeps::once_begun).value();
  ASSERT_TRUE(eventually([&] { return others_->completed() == 1; }, [&] { drive_client(); }));
  EXPECT_EQ(others_->count(), 1u);
  EXPECT_EQ(others_->aborted(), 0);
}

TEST_P(SampleUnderWay, WhatWaitsAndIsStillThereWhenItsTurnComesGoes) {
  begin();
  const SharedMessage sample = sample_of(100'000);
  Fanout::Round(*sender_).show(behind_it_, sample, 0, kWhole, Keeps::once_begun).value();
  ASSERT_TRUE(eventually([&] { return others_->completed() == 1; }, [&] { drive_client(); }));
  EXPECT_FALSE(was_dropped());
}

TEST_P(SampleUnderWay, WhatSomebodyWaitsForIsKeptUntilNobodyDoes) {
  begin();
  show_behind(Keeps::until_sent);
  EXPECT_EQ(slots_in_use(), 2u);
  Fanout::Round(*sender_).wait_no_more(*behind_it_);
  EXPECT_EQ(slots_in_use(), 1u);
  ASSERT_TRUE(eventually([&] { return was_dropped(); }, [&] { drive_client(); }));
}

// The samples go to different clients, so that all have begun.
TEST_P(SampleUnderWay, ThoseThatStandStillHoldAQuarterTogether) {
  using detail::StoppedSends;
  constexpr std::uint64_t kQuarter = 2 * kLarge;
  StoppedSends& sends = core()->publishing().sends();
  const auto pool = core()->publishing().pool();
  ASSERT_EQ(sends.most_bytes(), kQuarter);
  const auto started = StoppedSends::Clock::now();
  const auto later = [](int times) {
    return StoppedSends::Clock::now() + times * StoppedSends::kAfter;
  };
  std::vector<std::unique_ptr<OtherClient>> clients;
  for (int n = 0; n < 3; ++n) {
    clients.push_back(std::make_unique<OtherClient>(pair_));
    OtherClient& client = *clients.back();
    client.channel =
        std::make_shared<SampleChannel>(*core(), client.link, kPipe, Window::said(4, 2 * kLarge));
    Fanout::Round round(*sender_);
    ASSERT_EQ(round.show(client.channel, sample_of(kLarge), 0, kWhole, Keeps::once_begun).value(),
              Shown::under_way);
    if (n == 1) {
      EXPECT_EQ(pool->sending_bytes(), kQuarter);
      EXPECT_EQ(sends.take_back(later(10)), 0u) << "a quarter is theirs";
    }
  }
  EXPECT_EQ(pool->sending_bytes(), kQuarter + kLarge);
  EXPECT_EQ(sends.take_back(started), 0u) << "none stands still as yet";
  EXPECT_EQ(sends.take_back(later(2)), 1u);
  EXPECT_EQ(pool->sending_bytes(), kQuarter);
  const auto was_dropped = [&](const OtherClient& client) {
    return Fanout::Round(*sender_).was_dropped(*client.channel);
  };
  // The reader of the dropped sample discards the part that arrived; the others get their samples.
  int dropped = 0;
  for (const auto& client : clients) {
    const bool is_dropped = was_dropped(*client);
    dropped += is_dropped ? 1 : 0;
    EXPECT_EQ(client->channel->window().untaken_bytes(), is_dropped ? 0u : kLarge);
    ASSERT_TRUE(eventually(
        [&] { return (is_dropped ? client->sink->aborted() : client->sink->completed()) == 1; },
        [&] { client->context.progress(); }));
    EXPECT_EQ(client->sink->completed(), is_dropped ? 0 : 1);
  }
  EXPECT_EQ(dropped, 1);
  EXPECT_TRUE(eventually([&] { return pool->sending_bytes() == 0; }));
  for (const auto& client : clients) sender_->remove(client->channel);
}

TEST_P(SampleUnderWay, AChannelThatIsRemovedTakesItsSampleBack) {
  begin();
  sender_->remove(channel_);
  EXPECT_EQ(slots_in_use(), 0u);
  ASSERT_TRUE(eventually([&] { return sink_->aborted() == 1; }, [&] { drive_client(); }));
  EXPECT_EQ(sink_->completed(), 0);
}

TEST_P(SampleUnderWay, ALinkThatEndsGivesTheSlotBack) {
  begin();
  credits_->sender = sender_;
  link()->fail(Error{ErrorCode::peer_lost, "test", "the peer is taken for lost"},
               detail::Death::not_proved);
  EXPECT_EQ(slots_in_use(), 0u);
  EXPECT_TRUE(fails_with(show(small()), ErrorCode::peer_lost));
}

}  // namespace
}  // namespace tendon::test
