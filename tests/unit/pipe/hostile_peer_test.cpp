// SPDX-License-Identifier: Apache-2.0
// A peer that obeys the rules of the link and breaks those of the pipe. It sends through its own
// link, bypassing its pipe. Each violation ends that pipe with an error that names the peer.
#include <gtest/gtest.h>

#include <string>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::Descriptor;
using detail::MessageKind;

class HostilePeer : public PipeTest {
 protected:
  HostilePeer() : pair_(connect()) {}

  /// The client's link, on which its first pipe has the number 1.
  [[nodiscard]] std::shared_ptr<detail::Link> link() {
    return detail::ContextCore::of(pair_.client_context)->links().all()->front();
  }
  /// Sends `size` bytes, bypassing the pipe; false when the link ended meanwhile.
  bool send(Descriptor descriptor, std::uint64_t size) {
    const std::vector<std::byte> bytes(size, std::byte{3});
    const detail::BodyPart part{0, bytes, nullptr, size};
    detail::SendOp op;
    op.descriptor = descriptor;
    op.descriptor.pipe = 1;
    op.descriptor.payload_bytes = size;
    op.parts = {&part, 1};
    bool done = false;
    const bool gone_on = eventually([&] {
      pair_.client_context.progress();
      const auto sent = link()->send(op, Deadline::never());
      done = sent && *sent == detail::Sent::done;
      return done || !sent;
    });
    if (!done) (void)link()->withdraw(op);
    return gone_on && done;
  }
  /// Sends the number 7 for the leaf `n`, with `values`, in the schema of the previous message.
  bool send_seven(std::uint64_t sequence, std::string_view values) {
    const std::int64_t seven = 7;
    const detail::BodyPart part{0, std::as_bytes(std::span(&seven, 1)), nullptr, sizeof seven};
    detail::SendOp op;
    op.descriptor = {.kind = MessageKind::data,
                     .pipe = 1,
                     .sequence = sequence,
                     .schema = 1,
                     .payload_bytes = sizeof seven,
                     .values_bytes = static_cast<std::uint32_t>(values.size()),
                     .layout = Layout::aligned};
    op.parts = {&part, 1};
    op.values = as_bytes(values);
    return eventually([&] {
      pair_.client_context.progress();
      const auto sent = link()->send(op, Deadline::never());
      return sent && *sent == detail::Sent::done;
    });
  }
  void post_error(ErrorCode code, std::string_view text) {
    Descriptor error;
    error.kind = MessageKind::error;
    error.pipe = 1;
    error.tag = static_cast<std::uint32_t>(code);
    error.payload_bytes = text.size();
    link()->post(error, as_bytes(text));
  }

  PipePair pair_;
};
TENDON_ON_EVERY_WAY(HostilePeer);

TEST_P(HostilePeer, BeyondTheWindowIsRefusedBeforeItHasMemory) {
  if (way().is_shm()) GTEST_SKIP() << "the slots of the link are the bound";
  constexpr std::uint64_t kSize = 24 << 20;
  for (std::uint64_t n = 1; n <= 3; ++n)
    ASSERT_TRUE(send({.kind = MessageKind::bytes, .sequence = n}, kSize));
  // Two were within the window and are delivered.
  for (int n = 0; n < 2; ++n) {
    const auto message = pair_.server.recv_message(kPatience);
    ASSERT_TRUE(succeeds(message));
    EXPECT_EQ(message->bytes.size_bytes(), kSize);
  }
  EXPECT_TRUE(
      fails_with(pair_.server.recv_message(kPatience), ErrorCode::protocol_violation, "client"));
  EXPECT_TRUE(fails_with(pair_.server.recv_message(0s), ErrorCode::protocol_violation, "window"));
}

TEST_P(HostilePeer, MoreMessagesThanTheWindowAreRefused) {
  if (way().is_shm()) GTEST_SKIP() << "the ring is the bound";
  std::uint64_t sent = 0;
  while (sent < 3 * kPipeWindowMessages && link()->pipe_count() != 0 &&
         send({.kind = MessageKind::bytes, .sequence = sent + 1}, 8)) {
    ++sent;
  }
  // They are received only after all have arrived, because a receive makes room.
  const auto arrived = detail::ContextCore::of(pair_.server_context)->links().all()->front();
  ASSERT_TRUE(eventually([&] { return arrived->stats().messages_received >= sent; },
                         [&] { pair_.client_context.progress(); }));
  Result<Message> message = Message{};
  std::uint64_t received = 0;
  while ((message = pair_.server.recv_message(kPatience))) ++received;
  EXPECT_TRUE(fails_with(message, ErrorCode::protocol_violation, "client"));
  EXPECT_LT(received, sent);
}

TEST_P(HostilePeer, ARepeatedSequenceIsRefused) {
  ASSERT_TRUE(send({.kind = MessageKind::bytes, .sequence = 5}, 8));
  ASSERT_TRUE(send({.kind = MessageKind::bytes, .sequence = 5}, 8));
  EXPECT_TRUE(succeeds(pair_.server.recv_message(kPatience)));
  EXPECT_TRUE(
      fails_with(pair_.server.recv_message(kPatience), ErrorCode::protocol_violation, "client"));
}

// Each message is consumed, and the pipe continues.
TEST_P(HostilePeer, AMessageThatCannotBeReadIsOneError) {
  const auto is_refused = [&](std::string_view why) {
    return fails_with(pair_.server.recv(kPatience), ErrorCode::corrupt_data, why);
  };
  Descriptor of_schema{.kind = MessageKind::data, .layout = Layout::aligned};
  std::uint64_t sequence = 50;
  const auto goes_on = [&] {
    if (!send({.kind = MessageKind::bytes, .sequence = ++sequence}, 8)) return false;
    return pair_.server.recv_message(kPatience).has_value();
  };
  of_schema.sequence = ++sequence;
  of_schema.schema = 7;
  ASSERT_TRUE(send(of_schema, 64));
  EXPECT_TRUE(is_refused("7, which was not announced"));
  EXPECT_TRUE(goes_on());
  ASSERT_TRUE(send({.kind = MessageKind::schema, .sequence = ++sequence, .schema = 7}, 64));
  of_schema.sequence = ++sequence;
  ASSERT_TRUE(send(of_schema, 64));
  EXPECT_TRUE(is_refused("schema was refused"));
  EXPECT_TRUE(goes_on());
  const auto schema = numbered(1).schema();
  const Bytes encoding = schema->encoding();
  const detail::BodyPart part{0, encoding, nullptr, encoding.size()};
  detail::SendOp announcement;
  announcement.descriptor = {.kind = MessageKind::schema,
                             .pipe = 1,
                             .sequence = ++sequence,
                             .schema = 1,
                             .payload_bytes = encoding.size()};
  announcement.parts = {&part, 1};
  ASSERT_TRUE(eventually([&] {
    pair_.client_context.progress();
    const auto sent = link()->send(announcement, Deadline::never());
    return sent && *sent == detail::Sent::done;
  }));
  of_schema.sequence = ++sequence;
  of_schema.schema = 1;
  ASSERT_TRUE(send(of_schema, 500));
  EXPECT_TRUE(is_refused("500 bytes for a schema of 8"));
  ASSERT_TRUE(send_seven(++sequence, "{\"broken"));
  EXPECT_TRUE(is_refused("non-tensor data"));
  TensorDict into = numbered(0);
  ASSERT_TRUE(send_seven(++sequence, "{\"broken"));
  EXPECT_TRUE(fails_with(pair_.server.recv_into(into, kPatience), ErrorCode::corrupt_data, "data"));
  ASSERT_TRUE(send_seven(++sequence, ""));
  EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 7);
  EXPECT_TRUE(succeeds(pair_.server.send(numbered(1), kPatience))) << "the way back lives too";
}

// A value at the path of a tensor, below it, or where no TensorDict is. recv() and recv_into() both
// refuse it, and the destination keeps its tensors and its values.
TEST_P(HostilePeer, ValuesWithoutAPlaceReplaceNothingOfTheReceiver) {
  ASSERT_TRUE(succeeds(pair_.client.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair_.server.recv(kPatience)));
  std::uint64_t sequence = 10;
  for (const std::string_view values :
       {R"({"step":2,"n":5})", R"({"step":2,"n/below":5})", R"({"step":2,"info/deep":5})",
        R"({"step":2,"%2e":5})", R"({"step":2,"":5})", R"({"step":2)"}) {
    ASSERT_TRUE(send_seven(++sequence, values));
    ASSERT_TRUE(send_seven(++sequence, values));
    ASSERT_TRUE(send_seven(++sequence, values));
    const auto received = pair_.server.recv(kPatience);
    ASSERT_FALSE(received) << values;
    TensorDict into = numbered(3);
    into.set("step", 1);
    into.set("info/mine", 4);
    const std::byte* const memory = into["n"].data();
    EXPECT_TRUE(fails_with(pair_.server.recv_into(into, kPatience), received.error().code));
    EXPECT_TRUE(
        fails_with(pair_.server.recv_into_async(into).wait(kPatience), received.error().code));
    ASSERT_EQ(into.kind_of("n"), EntryKind::tensor) << values;
    EXPECT_EQ(into["n"].data(), memory) << values;
    EXPECT_EQ(*into.values(), Value(Value::Map{{"step", 1}, {"info/mine", 4}})) << values;
  }
  ASSERT_TRUE(send_seven(++sequence, R"({"step":2})"));
  TensorDict into = numbered(3);
  ASSERT_TRUE(succeeds(pair_.server.recv_into(into, kPatience))) << "the pipe goes on";
  EXPECT_EQ(number_of(into), 7);
  EXPECT_EQ(into.value("step").as_i64(), 2);
}

// Codes that describe the caller's own actions, or advise a retry, would be false.
TEST_P(HostilePeer, ItsReasonCannotPassForOneOfOurs) {
  for (const ErrorCode code : {ErrorCode::timeout, ErrorCode::busy, ErrorCode::end_of_stream,
                               ErrorCode::forked, ErrorCode::no_credit}) {
    PipePair pair = connect();
    std::swap(pair, pair_);
    post_error(code, "nothing came");
    EXPECT_TRUE(fails_with(pair_.server.recv(kPatience), ErrorCode::cancelled, "client"));
    EXPECT_TRUE(succeeds(pair_.server.close(kPatience)));
  }
}

TEST_P(HostilePeer, ItsReasonCarriesNothingThatATerminalObeys) {
  post_error(ErrorCode::internal,
             "a\x1b]0;title\x07 b\nc\xc2\x9b"
             "1m");
  const auto message = pair_.server.recv(kPatience);
  ASSERT_TRUE(fails_with(message, ErrorCode::internal, "client"));
  for (const char c : message.error().detail)
    EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message.error().detail;
  EXPECT_EQ(message.error().detail.find("\xc2\x9b"), std::string::npos);
}

TEST_P(HostilePeer, ItsReasonIsHeardAfterFinishSending) {
  ASSERT_TRUE(succeeds(pair_.server.finish_sending(kPatience)));
  post_error(ErrorCode::not_found, "model not loaded");
  EXPECT_TRUE(fails_with(pair_.server.recv(kPatience), ErrorCode::not_found, "model not loaded"));
}

}  // namespace
}  // namespace tendon::test
