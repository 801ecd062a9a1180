// SPDX-License-Identifier: Apache-2.0
// A peer that lies about the GPUs of its tensors: it sends past its pipe, through its own link.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using detail::Descriptor;
using detail::MessageKind;

using namespace std::chrono_literals;

class HostileGpuPeer : public GpuPipeTest {
 protected:
  /// This process uses CUDA.
  HostileGpuPeer() : pair_(connect()) { (void)program.gpu(0); }

  [[nodiscard]] std::shared_ptr<detail::Link> link() {
    return detail::ContextCore::of(pair_.client_context)->links().all()->front();
  }
  void offer(unsigned char last_byte) {
    cuda::Uuid gpu{};
    gpu.bytes.back() = last_byte;
    const auto hostile = link();
    EXPECT_TRUE(
        hostile->device_offers.number_of(gpu, [&](const Descriptor& word) { hostile->post(word); })
            .has_value());
  }
  /// Announces a schema of one leaf, the number `n`, as numbered() makes it.
  void announce(std::uint32_t number, const std::vector<std::uint8_t>& places) {
    const auto schema = numbered(0).schema();
    send({.kind = MessageKind::schema,
          .schema = number,
          .payload_bytes = schema->encoding().size(),
          .values_bytes = static_cast<std::uint32_t>(places.size())},
         schema->encoding(), std::as_bytes(std::span(places)));
  }
  void send_number(std::uint32_t schema, std::int64_t n) {
    send({.kind = MessageKind::data,
          .schema = schema,
          .payload_bytes = sizeof n,
          .layout = Layout::aligned},
         std::as_bytes(std::span(&n, 1)), {});
  }

  PipePair pair_;

 private:
  void send(Descriptor descriptor, Bytes payload, Bytes values) {
    const detail::BodyPart part{0, payload, nullptr, payload.size()};
    detail::SendOp op;
    op.descriptor = descriptor;
    op.descriptor.pipe = 1;
    op.descriptor.sequence = ++sequence_;
    op.parts = {&part, 1};
    op.values = values;
    ASSERT_TRUE(eventually([&] {
      pair_.client_context.progress();
      const auto sent = link()->send(op, Deadline::never());
      return sent && *sent == detail::Sent::done;
    }));
  }
  std::uint64_t sequence_ = 0;
};
TENDON_ON_EVERY_WAY(HostileGpuPeer);

TEST_P(HostileGpuPeer, AGpuThatWasNotOfferedCostsItsMessagesAndNoMore) {
  offer(0);
  std::uint32_t schema = 0;
  for (const std::uint8_t place : std::initializer_list<std::uint8_t>{2, 65, 255}) {
    announce(++schema, {place});
    send_number(schema, 1);
    send_number(schema, 2);
    announce(++schema, {});
    send_number(schema, 3);
    for (int i = 0; i < 2; ++i) {
      const auto refused = pair_.server.recv(kPatience);
      ASSERT_TRUE(fails_with(refused, ErrorCode::corrupt_data, "its schema was refused"));
      EXPECT_TRUE(fails_with(refused, ErrorCode::corrupt_data, "client"));
      EXPECT_TRUE(fails_with(refused, ErrorCode::corrupt_data, "had not offered"));
    }
    EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 3);
  }
  EXPECT_TRUE(succeeds(pair_.server.send(numbered(1), kPatience))) << "the way back lives too";
}

TEST_P(HostileGpuPeer, PlacesOfAnotherNumberOfLeavesCostTheirMessages) {
  offer(0);
  std::uint32_t schema = 0;
  for (const std::vector<std::uint8_t>& places :
       {std::vector<std::uint8_t>{1, 1}, std::vector<std::uint8_t>(1000, 1)}) {
    announce(++schema, places);
    send_number(schema, 1);
    announce(++schema, {1});
    send_number(schema, 2);
    EXPECT_TRUE(fails_with(pair_.server.recv(kPatience), ErrorCode::corrupt_data,
                           "leaves lie, of a schema of 1"));
    const auto received = pair_.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ((*received)["n"].device(), kGpu0);
    EXPECT_EQ(read((*received)["n"]).item<std::int64_t>(), 2);
  }
}

TEST_P(HostileGpuPeer, RefusedMessagesFailInEachWayToReceiveThem) {
  announce(1, {1});
  for (int i = 0; i < 5; ++i) send_number(1, i);
  announce(2, {});
  send_number(2, 7);
  EXPECT_TRUE(fails_with(pair_.server.recv({.device = cpu()}, kPatience), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(pair_.server.recv({.device = kGpu0}, kPatience), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(pair_.server.recv_message(kPatience), ErrorCode::corrupt_data));
  TensorDict into = numbered(3);
  EXPECT_TRUE(fails_with(pair_.server.recv_into(into, kPatience), ErrorCode::corrupt_data));
  EXPECT_EQ(number_of(into), 3);
  EXPECT_TRUE(fails_with(pair_.server.recv_async().wait(kPatience), ErrorCode::corrupt_data));
  EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 7);
}

TEST_P(HostileGpuPeer, AGpuThatThisProcessHasNotLeavesTheMessageForHostMemory) {
  offer(0x77);
  announce(1, {1});
  send_number(1, 5);
  send_number(1, 6);
  announce(2, {});
  send_number(2, 7);
  for (int i = 0; i < 3; ++i) {
    const auto absent = pair_.server.recv(kPatience);
    ASSERT_TRUE(fails_with(absent, ErrorCode::unsupported_device, "000000000077"));
    EXPECT_TRUE(fails_with(absent, ErrorCode::unsupported_device, "device=\"cpu\""));
  }
  EXPECT_TRUE(
      fails_with(pair_.server.recv_message(kPatience), ErrorCode::unsupported_device, "77"));
  auto received = pair_.server.recv({.device = cpu()}, kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ((*received)["n"].device(), cpu());
  EXPECT_EQ(number_of(*received), 5);
  // On another GPU, which the caller must name.
  EXPECT_TRUE(fails_with(pair_.server.recv(kPatience), ErrorCode::unsupported_device));
  received = pair_.server.recv({.device = kGpu1}, kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ(read((*received)["n"]).item<std::int64_t>(), 6);
  EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 7);
}

TEST_P(HostileGpuPeer, ALeafThatClaimsAGpuAndOneThatDoesNotLieApart) {
  offer(1);
  announce(1, {0});
  send_number(1, 4);
  announce(2, {1});
  send_number(2, 5);
  EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 4) << "zeros say host memory";
  const auto received = pair_.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ((*received)["n"].device(), kGpu1);
  EXPECT_EQ(read((*received)["n"]).item<std::int64_t>(), 5);
}

// No peer causes this, but a process with this many GPUs.
TEST_P(HostileGpuPeer, BeyondTheGpusOfALinkABatchIsRefusedAndHostMemoryGoesOn) {
  for (std::size_t n = 0; n < kMaxDevicesPerLink; ++n) offer(static_cast<unsigned char>(100 + n));
  TensorDict batch;
  batch.set("n", on_gpu(numbered(1)["n"]));
  const auto refused = pair_.client.send(batch, kPatience);
  EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "kMaxDevicesPerLink"));
  EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "server"));
  EXPECT_TRUE(
      fails_with(pair_.client.send_async(batch).wait(kPatience), ErrorCode::unsupported_device));
  ASSERT_TRUE(succeeds(pair_.client.send(numbered(4), kPatience)));
  EXPECT_EQ(number_of(pair_.server.recv(kPatience).value()), 4);
  ASSERT_TRUE(succeeds(pair_.server.send(batch, kPatience))) << "each side counts its own";
  EXPECT_TRUE(succeeds(pair_.client.recv(kPatience)));
}

}  // namespace
}  // namespace tendon::test
