// SPDX-License-Identifier: Apache-2.0
// The owner of a channel is called when messages have arrived and nobody waits for them.
#include "channel/message_callback.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "channel/receiver.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using detail::ChannelReceiver;
using detail::ContextCore;
using detail::Descriptor;
using detail::Incoming;
using detail::Link;
using detail::MessageCallback;
using detail::MessageKind;

constexpr std::uint64_t kCap = 1 << 20;

/// A receiver without a link, on a Context whose callbacks run when the test says so.
class MessageCallbacks : public testing::Test {
 protected:
  MessageCallbacks() { receiver_.call_back(callback_); }
  [[nodiscard]] static Incoming message(std::uint64_t sequence) {
    Incoming incoming;
    incoming.descriptor = {.kind = MessageKind::bytes, .sequence = sequence};
    return incoming;
  }
  void arrive() { EXPECT_EQ(receiver_.accept(message(++sequence_)), ChannelReceiver::Fault::none); }
  void take_all() {
    while (!receiver_.empty()) (void)receiver_.pop_front();
  }

  Context context_ = Context::create({.progress = Progress::manual}).value();
  detail::HeldBytes schemas_{kCap, [] {}};
  ChannelReceiver receiver_{5, {}, kCap, schemas_};
  std::uint64_t sequence_ = 0;
  std::atomic<int> ran_{0};
  std::function<void()> inside_ = [] {};
  const std::shared_ptr<MessageCallback> callback_ =
      std::make_shared<MessageCallback>(*ContextCore::of(context_), [this] {
        ++ran_;
        inside_();
      });
};

TEST_F(MessageCallbacks, OneIsRunLaterAndOnceForAllThatHaveArrived) {
  inside_ = [this] { take_all(); };
  for (int n = 0; n < 3; ++n) arrive();
  EXPECT_EQ(ran_, 0) << "not where the message is handed over";
  context_.progress();
  EXPECT_EQ(ran_, 1);
  context_.progress();
  EXPECT_EQ(ran_, 1);
  arrive();
  context_.progress();
  EXPECT_EQ(ran_, 2);
}

TEST_F(MessageCallbacks, OneHearsOfWhatWasThereBefore) {
  receiver_.call_back(nullptr);
  arrive();
  context_.progress();
  EXPECT_EQ(ran_, 0);
  receiver_.call_back(callback_);
  context_.progress();
  EXPECT_EQ(ran_, 1);
}

TEST_F(MessageCallbacks, OneHearsOnlyOfWhatCallersLeave) {
  std::optional<MessageCallback::Caller> first(*callback_);
  std::optional<MessageCallback::Caller> second(*callback_);
  arrive();
  arrive();
  EXPECT_EQ(ContextCore::of(context_)->waiting_callbacks(), 0u) << "the service thread may sleep";
  first.reset();
  context_.progress();
  EXPECT_EQ(ran_, 0) << "one waits still";
  (void)receiver_.pop_front();
  second.reset();
  context_.progress();
  EXPECT_EQ(ran_, 1) << "it left one";
  second.emplace(*callback_);
  arrive();
  take_all();
  second.reset();
  context_.progress();
  EXPECT_EQ(ran_, 1) << "it left none";
}

TEST_F(MessageCallbacks, OneThatWasScheduledIsNotRunForWhatACallerTook) {
  arrive();
  {
    const MessageCallback::Caller caller(*callback_);
    context_.progress();
    EXPECT_EQ(ran_, 0);
    take_all();
  }
  context_.progress();
  EXPECT_EQ(ran_, 0);
  for (int n = 0; n < 2000; ++n) {
    arrive();
    take_all();
  }
  EXPECT_LE(ContextCore::of(context_)->waiting_callbacks(), 1u);
}

TEST_F(MessageCallbacks, AMessageHasArrivedWhenAllOfItIsThere) {
  const auto transfer = std::make_shared<detail::Transfer>();
  transfer->descriptor = message(1).descriptor;
  Incoming incoming = message(1);
  incoming.transfer = transfer;
  ASSERT_EQ(receiver_.accept(std::move(incoming)), ChannelReceiver::Fault::none);
  sequence_ = 1;
  arrive();
  context_.progress();
  EXPECT_EQ(ran_, 0) << "what is behind it cannot be taken before it";
  transfer->aborted = true;
  receiver_.on_transfer_ended(*transfer);
  context_.progress();
  EXPECT_EQ(ran_, 1) << "the next one";
  take_all();
  const auto second = std::make_shared<detail::Transfer>();
  incoming = message(3);
  incoming.transfer = second;
  ASSERT_EQ(receiver_.accept(std::move(incoming)), ChannelReceiver::Fault::none);
  context_.progress();
  EXPECT_EQ(ran_, 1);
  second->complete = true;
  receiver_.on_transfer_ended(*second);
  context_.progress();
  EXPECT_EQ(ran_, 2);
}

TEST_F(MessageCallbacks, OneIsNotRunWhileItRuns) {
  std::latch entered(1);
  std::latch released(1);
  inside_ = [&] {
    if (ran_ != 1) return;
    entered.count_down();
    released.wait();
  };
  callback_->came();
  {
    const std::jthread first([this] { context_.progress(); });
    entered.wait();
    callback_->came();
    context_.progress();
    EXPECT_EQ(ran_, 1);
    released.count_down();
  }
  context_.progress();
  EXPECT_EQ(ran_, 2) << "for what came meanwhile";
}

TEST_F(MessageCallbacks, OneThatThrowsIsRunAgain) {
  inside_ = [this] {
    take_all();
    throw std::runtime_error("thrown by a test");
  };
  for (int n = 1; n <= 2; ++n) {
    arrive();
    context_.progress();
    EXPECT_EQ(ran_, n);
  }
}

TEST_F(MessageCallbacks, OneEndsWithItsChannel) {
  std::latch entered(1);
  std::latch released(1);
  std::atomic<bool> over{false};
  inside_ = [&] {
    entered.count_down();
    released.wait();
    over = true;
  };
  arrive();
  const std::jthread runner([this] { context_.progress(); });
  entered.wait();
  const std::jthread helper([&] { released.count_down(); });
  callback_->end();
  EXPECT_TRUE(over) << "it is waited for";
  arrive();
  context_.progress();
  EXPECT_EQ(ran_, 1);
}

TEST_F(MessageCallbacks, OneMayEndItself) {
  inside_ = [this] { callback_->end(); };
  arrive();
  context_.progress();
  arrive();
  context_.progress();
  EXPECT_EQ(ran_, 1);
}

// On a link

/// A channel that nobody waits on: its callback takes what comes.
class Sink final : public detail::MessageSink {
 public:
  Sink(ContextCore& context, std::shared_ptr<Link> link, std::uint32_t pipe)
      : link_(std::move(link)),
        receiver_(pipe, {}, kCap, link_->budget()),
        callback_(std::make_shared<MessageCallback>(context, [this] { take_all(); })) {
    const detail::Lock receiving(link_->receive_mutex());
    receiver_.call_back(callback_);
  }
  void on_message(Incoming&& incoming) override {
    EXPECT_EQ(receiver_.accept(std::move(incoming)), ChannelReceiver::Fault::none);
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor& descriptor) override { return receiver_.admits(descriptor); }
  void on_transfer_ended(const detail::Transfer& transfer) override {
    receiver_.on_transfer_ended(transfer);
  }
  void on_link_failed(const Error&) override {}

  void end() { callback_->end(); }
  std::atomic<int> taken{0};
  std::atomic<bool> in_order{true};

 private:
  // It may take the lock of the link that brought the message.
  void take_all() {
    const detail::Lock receiving(link_->receive_mutex());
    while (!receiver_.empty() && receiver_.front().arrived()) {
      (void)receiver_.take_front();
      in_order = in_order && receiver_.front().descriptor.tag == static_cast<std::uint32_t>(taken);
      (void)receiver_.pop_front();
      ++taken;
    }
  }

  const std::shared_ptr<Link> link_;
  ChannelReceiver receiver_;
  const std::shared_ptr<MessageCallback> callback_;
};

class MessageCallbackOnLink : public PipeTest {};
TENDON_ON_EVERY_WAY(MessageCallbackOnLink);

TEST_P(MessageCallbackOnLink, TakesWhateverComesInOrder) {
  constexpr std::uint32_t kPipe = 9;
  constexpr int kCount = 200;
  PipePair pair = connect();
  ContextCore& core = *ContextCore::of(pair.client_context);
  const auto link = core.links().all()->front();
  const auto sink = std::make_shared<Sink>(core, link, kPipe);
  {
    const detail::Lock receiving(link->receive_mutex());
    link->attach(kPipe, sink);
  }
  const auto drive = [&] {
    if (way().client_progress == Progress::manual)
      pair.client_context.progress();
    else
      std::this_thread::yield();
  };
  const auto from = ContextCore::of(pair.server_context)->links().all()->front();
  const std::vector<std::byte> large(20'000);
  for (std::uint32_t n = 0; n < kCount; ++n) {
    const Bytes body = n % 8 == 0 ? Bytes(large) : as_bytes("small");
    const detail::BodyPart part{0, body, nullptr, body.size()};
    detail::SendOp op;
    op.descriptor = {.kind = MessageKind::bytes,
                     .pipe = kPipe,
                     .sequence = n + 1,
                     .tag = n,
                     .payload_bytes = body.size()};
    op.parts = {&part, 1};
    ASSERT_TRUE(eventually(
        [&] {
          const auto sent = from->send(op, Deadline::never());
          return sent && *sent == detail::Sent::done;
        },
        drive));
  }
  ASSERT_TRUE(eventually([&] { return sink->taken == kCount; }, drive));
  EXPECT_TRUE(sink->in_order);
  sink->end();
}

}  // namespace
}  // namespace tendon::test
