// SPDX-License-Identifier: Apache-2.0
// The states of channel/channel.hpp, and the events that its owner gets.
#include "channel/channel.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "support/peerless_link.hpp"

namespace tendon::test {
namespace {

using detail::Channel;
using detail::Descriptor;
using detail::Incoming;
using detail::Lock;
using detail::MessageKind;
using detail::Window;
using Head = Channel::Head;
using State = Channel::State;

constexpr std::uint32_t kPipe = 7;

/// Records the kinds of the words that this side sent.
class NotingLink final : public PeerlessLink {
 public:
  void post(const Descriptor& descriptor) override { said.push_back(descriptor.kind); }
  void post(const Descriptor& descriptor, Bytes) override { said.push_back(descriptor.kind); }
  std::vector<MessageKind> said;
};

class ChannelTest : public testing::Test, public detail::ChannelEvents {
 protected:
  void open(Channel::Options options = {}) {
    options.pipe = kPipe;
    options.where = "test";
    channel_ = std::make_unique<Channel>(link_, options, *this);
    const Lock receiving(link_->receive_mutex());
    link_->attach(kPipe,
                  std::shared_ptr<detail::MessageSink>(std::shared_ptr<void>(), channel_.get()));
  }
  void hear(Descriptor descriptor, std::string_view text = {}) {
    const Lock receiving(link_->receive_mutex());
    text_ = text;
    Incoming incoming;
    incoming.descriptor = descriptor;
    incoming.descriptor.pipe = kPipe;
    incoming.descriptor.payload_bytes += text.size();
    incoming.body.data = reinterpret_cast<std::byte*>(text_.data());
    channel_->on_message(std::move(incoming));
  }
  void hear_message() { hear({.kind = MessageKind::bytes, .sequence = ++sequence_}); }
  void hear_end() { hear({.kind = MessageKind::end, .sequence = ++sequence_, .tag = 1}); }
  void hear_error() {
    hear({.kind = MessageKind::error, .tag = static_cast<std::uint32_t>(ErrorCode::not_found)},
         "gone");
  }
  void lose_link() {
    link_->fail(Error{ErrorCode::peer_lost, "test", "cut"}, detail::Death::not_proved);
  }
  Head look() {
    const Lock receiving(channel_->receive_mutex());
    return channel_->look();
  }
  void take() {
    const Lock receiving(channel_->receive_mutex());
    (void)channel_->receiver().take_front();
    (void)channel_->receiver().pop_front();
  }
  Error why() {
    const Lock receiving(channel_->receive_mutex());
    return channel_->why();
  }

  // ChannelEvents
  void on_arrived() override { ++arrivals; }
  void on_room() override { ++rooms; }
  void on_over() override { ++overs; }
  void on_peer_gone(State how, const Error&) override { gone.push_back(how); }
  void on_end_said(const Descriptor& end) override { said_end = end.tag; }
  void on_end_read(const Descriptor& end) override { read_end = end.tag; }

  const std::shared_ptr<NotingLink> link_ = std::make_shared<NotingLink>();
  std::unique_ptr<Channel> channel_;
  std::string text_;
  std::uint64_t sequence_ = 0;
  int arrivals = 0;
  int rooms = 0;
  int overs = 0;
  std::uint32_t said_end = 0;
  std::uint32_t read_end = 0;
  std::vector<State> gone;
};

TEST_F(ChannelTest, AnEndIsReadBehindWhatCameBefore) {
  open();
  hear_message();
  hear_end();
  EXPECT_EQ(arrivals, 2);
  EXPECT_EQ(said_end, 1u);
  EXPECT_EQ(look(), Head::message);
  EXPECT_TRUE(channel_->is_open());
  EXPECT_EQ(read_end, 0u);
  take();
  EXPECT_EQ(look(), Head::nothing);
  EXPECT_EQ(read_end, 1u);
  EXPECT_EQ(channel_->state(), State::ended);
  EXPECT_EQ(why().code, ErrorCode::end_of_stream);
  EXPECT_EQ(overs, 1);
  EXPECT_TRUE(gone.empty()) << "the peer may take what is sent";
}

TEST_F(ChannelTest, ThePeersReasonStaysAndLeavesWhatCameBefore) {
  open();
  hear_message();
  hear_error();
  EXPECT_EQ(channel_->state(), State::refused);
  EXPECT_EQ(why().code, ErrorCode::not_found);
  EXPECT_NE(why().detail.find("gone"), std::string::npos) << why().detail;
  lose_link();
  EXPECT_EQ(channel_->state(), State::refused) << "the first reason stays";
  EXPECT_EQ(overs, 1);
  EXPECT_EQ(gone, (std::vector{State::refused, State::lost}));
  EXPECT_EQ(look(), Head::message);
  hear_message();
  const Lock receiving(channel_->receive_mutex());
  EXPECT_EQ(channel_->late_count(), 1u);
  EXPECT_EQ(channel_->receiver().taken_messages(), 0u);
}

TEST_F(ChannelTest, AnEndThatCameBeforeItsLinkWasLostIsOrderly) {
  open();
  hear_end();
  lose_link();
  EXPECT_EQ(channel_->state(), State::lost);
  EXPECT_EQ(look(), Head::nothing);
  EXPECT_EQ(channel_->state(), State::ended);
  EXPECT_EQ(read_end, 1u);
  EXPECT_EQ(overs, 1);
}

TEST_F(ChannelTest, APeerThatHasEndedMayBeGoneLater) {
  open();
  hear_end();
  EXPECT_EQ(look(), Head::nothing);
  hear({.kind = MessageKind::cancel});
  EXPECT_EQ(channel_->state(), State::ended);
  EXPECT_EQ(gone, std::vector{State::cancelled});
}

TEST_F(ChannelTest, ACancelNamesARequestWhereThereAreAny) {
  open();
  hear({.kind = MessageKind::cancel, .sequence = 3});
  EXPECT_EQ(channel_->state(), State::cancelled);
  open({.cancels = Channel::Cancels::requests});
  hear({.kind = MessageKind::cancel, .sequence = 3});
  EXPECT_TRUE(channel_->is_open());
  EXPECT_EQ(look(), Head::withdrawal);
  hear({.kind = MessageKind::cancel});
  EXPECT_EQ(channel_->state(), State::cancelled);
}

TEST_F(ChannelTest, APeerThatBreaksARuleIsToldOnce) {
  open();
  hear_message();
  hear({.kind = MessageKind::bytes, .sequence = sequence_});
  EXPECT_EQ(channel_->state(), State::broken);
  EXPECT_EQ(why().code, ErrorCode::protocol_violation);
  EXPECT_NE(why().detail.find("repeated message 1"), std::string::npos) << why().detail;
  hear_message();
  hear_message();
  EXPECT_EQ(link_->said, std::vector{MessageKind::error});
  EXPECT_EQ(overs, 1);
}

TEST_F(ChannelTest, NothingBeyondTheWindowOrTheLargestBodyComesIn) {
  open({.window = Window::said(4, 1000), .most_bytes = 600});
  const Lock receiving(channel_->receive_mutex());
  EXPECT_TRUE(channel_->admits({.kind = MessageKind::bytes, .payload_bytes = 600}));
  EXPECT_FALSE(channel_->admits({.kind = MessageKind::bytes, .payload_bytes = 601}));
  EXPECT_EQ(channel_->state(), State::broken);
  EXPECT_EQ(channel_->why().code, ErrorCode::limit_exceeded);
  EXPECT_FALSE(channel_->admits({.kind = MessageKind::bytes, .payload_bytes = 1}));
}

TEST_F(ChannelTest, ASmallBodyIsMeasuredThoughNobodyAsksForIt) {
  open({.most_bytes = 3});
  hear({.kind = MessageKind::bytes, .sequence = 1}, "abc");
  EXPECT_TRUE(channel_->is_open());
  hear({.kind = MessageKind::bytes, .sequence = 2}, "abcd");
  EXPECT_EQ(why().code, ErrorCode::limit_exceeded);
  EXPECT_EQ(link_->said, std::vector{MessageKind::error});
}

TEST_F(ChannelTest, CreditsMakeRoomAndItsOwnEndIsSaidOnce) {
  detail::SendWindow window(Window{}, 1 << 20);
  open({.sending = &window});
  window.count(10);
  hear({.kind = MessageKind::credit, .sequence = 1});
  EXPECT_EQ(window.untaken_messages(), 0u);
  hear({.kind = MessageKind::ack, .sequence = 5});
  EXPECT_EQ(window.acked_sequence(), 5u);
  EXPECT_EQ(rooms, 1);
  channel_->close(Channel::Says::while_open);
  EXPECT_EQ(channel_->state(), State::closed);
  EXPECT_EQ(link_->said, std::vector{MessageKind::end});
  EXPECT_EQ(overs, 0) << "its owner knows";
}

TEST_F(ChannelTest, OneThatWasOverSaysNoEndUnlessItsOwnerAlwaysDoes) {
  open();
  hear_error();
  channel_->close(Channel::Says::while_open);
  EXPECT_TRUE(link_->said.empty());
  channel_->close(Channel::Says::always);
  EXPECT_EQ(link_->said, std::vector{MessageKind::end});
}

// Calls and topics use such a channel.
TEST_F(ChannelTest, AChannelWithoutGpusRefusesASchemaOfOneAndReadsTheNext) {
  open();
  const auto schema = Schema::make({{"x", DType::u8, {1}}}).value();
  const std::string encoding(as_text(schema->encoding()));
  const auto announce = [&](std::uint32_t number, const std::string& values) {
    Descriptor word{.kind = MessageKind::schema, .sequence = ++sequence_, .schema = number};
    word.values_bytes = static_cast<std::uint32_t>(values.size());
    word.payload_bytes -= values.size();  // hear() counts the whole text
    hear(word, encoding + values);
  };
  const auto message = [&](std::uint32_t number) {
    hear({.kind = MessageKind::data, .sequence = ++sequence_, .schema = number});
  };
  announce(1, "\x01");
  EXPECT_EQ(look(), Head::nothing);
  for (int i = 0; i < 2; ++i) {
    message(1);
    EXPECT_EQ(look(), Head::message);
    {
      const Lock receiving(channel_->receive_mutex());
      EXPECT_EQ(channel_->receiver().schema(1), nullptr);
      EXPECT_EQ(channel_->receiver().why_unknown(1).code, ErrorCode::unsupported_device);
    }
    take();
  }
  announce(2, "");
  EXPECT_EQ(look(), Head::nothing);
  message(2);
  EXPECT_EQ(look(), Head::message);
  EXPECT_TRUE(channel_->is_open());
  const Lock receiving(channel_->receive_mutex());
  ASSERT_NE(channel_->receiver().schema(2), nullptr);
  EXPECT_EQ(*channel_->receiver().schema(2), *schema);
}

}  // namespace
}  // namespace tendon::test
