// SPDX-License-Identifier: Apache-2.0
// The accepting side over streams with less room than a frame: it continues when there is room.
#include "runtime/admission.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "support/expect.hpp"
#include "support/memory_stream.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

using detail::Handshake;
using detail::HandshakeStep;
using detail::HandshakeStream;
using detail::HelloKind;
using detail::HelloMessage;
using detail::Next;

class AnyPeer final : public detail::OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<detail::Link>,
                                                       const detail::Descriptor&, Bytes) override {
    return Error{ErrorCode::unreachable, "test", "no pipes here"};
  }
  void on_context_closed() override {}
};

class AdmissionWithLittleRoom : public testing::TestWithParam<MemoryStream::Manner> {
 protected:
  // Opens a connection of the peer.
  HandshakeStream come() { return come(GetParam()); }
  HandshakeStream come(MemoryStream::Manner manner) {
    auto streams = MemoryStream::make_pair(manner);
    acceptor_->admit(std::move(streams.second), std::nullopt);
    return {std::move(streams.first), Handshake::connector()};
  }
  // Sends `question` and takes the step that follows.
  static HandshakeStep take_step(HandshakeStream& peer, const HelloMessage& question) {
    HandshakeStep step = peer.reply(question);
    EXPECT_TRUE(eventually([&] {
      if (step.next == Next::read) step = peer.advance();
      return step.next != Next::read;
    }));
    return step;
  }
  // Sends `question` and returns the answer.
  static HelloMessage ask(HandshakeStream& peer, const HelloMessage& question) {
    HelloMessage nothing;
    nothing.kind = HelloKind::reject;
    return take_step(peer, question).message.value_or(nothing);
  }

  const std::shared_ptr<AnyPeer> handler_ = std::make_shared<AnyPeer>();
  Context context_ = Context::create({}).value();
  const std::shared_ptr<detail::Acceptor> acceptor_ =
      detail::Acceptor::bind(detail::ContextCore::of(context_), "127.0.0.1:0", {Profile::plaintext},
                             handler_)
          .value();
};

TEST_P(AdmissionWithLittleRoom, SaysItsLastFrameToTheEnd) {
  HandshakeStream peer = come();
  ASSERT_EQ(ask(peer, claims()).kind, HelloKind::hello);
  HelloMessage path;
  path.kind = HelloKind::path;
  path.path = PathKind::tcp;
  path.reuse = detail::Reuse::reuse;
  EXPECT_EQ(ask(peer, path).kind, HelloKind::ready);
}

TEST_P(AdmissionWithLittleRoom, MakesALinkAndItsLane) {
  HandshakeStream peer = come();
  const HelloMessage hello = claims();
  ASSERT_EQ(ask(peer, hello).kind, HelloKind::hello);
  HelloMessage path;
  path.kind = HelloKind::path;
  path.path = PathKind::tcp;
  const HelloMessage ready = ask(peer, path);
  ASSERT_EQ(ready.kind, HelloKind::ready);
  HandshakeStream lane = come();
  HelloMessage joins;
  joins.kind = HelloKind::lane;
  joins.context_id = hello.context_id;
  joins.ticket = ready.ticket;
  EXPECT_EQ(ask(lane, joins).kind, HelloKind::ready);
  // The link owns the stream, so it does not end with the handshake.
  char byte = 0;
  const iovec piece{&byte, 1};
  EXPECT_EQ(lane.stream()->read({&piece, 1}).state, detail::StreamIo::State::later);
  EXPECT_EQ(context_.members().size(), 1u);
}

// Another listener may have taken the address since the link was made.
TEST_P(AdmissionWithLittleRoom, ALaneOfNoLinkIsToldToConnectAgain) {
  HandshakeStream lane = come({});
  HelloMessage joins;
  joins.kind = HelloKind::lane;
  joins.context_id = claims().context_id;
  joins.ticket[0] = std::byte{1};
  const HandshakeStep answer = take_step(lane, joins);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::server_busy) << answer.error->message();
}

INSTANTIATE_TEST_SUITE_P(Manners, AdmissionWithLittleRoom,
                         testing::Values(MemoryStream::Manner{.room_bytes = 10},
                                         MemoryStream::Manner{.room_bytes = 10, .record_bytes = 7},
                                         MemoryStream::Manner{.room_bytes = 10,
                                                              .record_bytes = 1000}));

}  // namespace
}  // namespace tendon::test
