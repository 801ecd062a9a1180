// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs between two processes, on the double of the driver: the view of each process, and
// the end of one of them.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "process/gpu_peer.hpp"
#include "process/survivor.hpp"
#include "support/child.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kSizes[] = {100, 1'000'000};  // inline, and in a slot

/// A pipe on which a batch waits for its GPU: it was sent asynchronously, behind a gate.
struct SentBehindGate {
  SentBehindGate(Transport transport, std::uint64_t size,
                 const std::vector<std::string>& of_sender = {})
      : sender("sender", transport, {}, of_sender), receiver("receiver", transport) {
    connect(sender, receiver);
    EXPECT_TRUE(is_ok(receiver.ask("use 0")));
    EXPECT_TRUE(is_ok(sender.prepare(1, size, "cuda:0")));
    EXPECT_TRUE(is_ok(sender.ask("gate")));
    EXPECT_TRUE(is_ok(sender.ask("send-async")));
  }
  GpuPeer sender;
  GpuPeer receiver;
};

class GpuProcesses : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(GpuProcesses);

// The view of each process

TEST_P(GpuProcesses, AReceiverThatUsesNoCudaIsNotMadeTo) {
  for (const Environment& environment :
       {Environment{}, Environment{{"TENDON_CUDA", "off"}},
        Environment{{"TENDON_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"}}}) {
    GpuPeer sender("sender", GetParam());
    GpuPeer receiver("receiver", GetParam(), environment);
    connect(sender, receiver);
    for (const std::uint64_t size : kSizes) {
      ASSERT_TRUE(is_ok(sender.prepare(size, size, "cuda:0")));
      ASSERT_TRUE(is_ok(sender.send()));
      for (int i = 0; i < 2; ++i) {
        const std::string answer = receiver.receive(size, size, "there");
        EXPECT_TRUE(is_error(answer, "unsupported_device", "device=\"cpu\""));
      }
      EXPECT_EQ(receiver.receive(size, size, "cpu"), "ok cpu");
    }
    EXPECT_EQ(receiver.calls("cuInit"), 0u);
    EXPECT_EQ(receiver.calls("all"), receiver.calls("cuDeviceGetCount")) << "only a question";
    // Host memory travels both ways meanwhile.
    ASSERT_TRUE(is_ok(receiver.prepare(3, 1000, "cpu")));
    ASSERT_TRUE(is_ok(receiver.send()));
    EXPECT_EQ(sender.receive(3, 1000, "there"), "ok cpu");
  }
}

TEST_P(GpuProcesses, AReceiverThatAsksForAGpuUsesIt) {
  GpuPeer sender("sender", GetParam());
  GpuPeer receiver("receiver", GetParam());
  connect(sender, receiver);
  ASSERT_TRUE(is_ok(sender.prepare(1, 100'000, "cuda:0")));
  ASSERT_TRUE(is_ok(sender.send()));
  EXPECT_EQ(receiver.receive(1, 100'000, "cuda:1"), "ok cuda:1");
  ASSERT_TRUE(is_ok(sender.send()));
  EXPECT_EQ(receiver.receive(1, 100'000, "there"), "ok cuda:0") << "now it is one that uses CUDA";
}

TEST_P(GpuProcesses, AGpuIsTheSameOneUnderAnotherNumber) {
  const std::string zeros(30, '0');
  GpuPeer sender("sender", GetParam());
  GpuPeer receiver("receiver", GetParam(),
                   {{"TENDON_CUDA_DOUBLE_UUIDS", zeros + "01," + zeros + "00"}});
  connect(sender, receiver);
  ASSERT_TRUE(is_ok(receiver.ask("use 0")));
  for (const std::uint64_t size : kSizes) {
    ASSERT_TRUE(is_ok(sender.prepare(1, size, "cuda:0")));
    ASSERT_TRUE(is_ok(sender.send()));
    EXPECT_EQ(receiver.receive(1, size, "there"), "ok cuda:1");
    ASSERT_TRUE(is_ok(sender.prepare(2, size, "cuda:1")));
    ASSERT_TRUE(is_ok(sender.send()));
    EXPECT_EQ(receiver.receive(2, size, "there"), "ok cuda:0");
    ASSERT_TRUE(is_ok(receiver.prepare(3, size, "cuda:0")));
    ASSERT_TRUE(is_ok(receiver.send()));
    EXPECT_EQ(sender.receive(3, size, "there"), "ok cuda:1");
  }
}

TEST_P(GpuProcesses, AGpuThatIsHiddenLeavesTheMessageForAnotherPlace) {
  GpuPeer sender("sender", GetParam());
  GpuPeer receiver(
      "receiver", GetParam(),
      {{"TENDON_CUDA_DOUBLE_UUIDS", std::string(32, 'a') + "," + std::string(32, 'b')}});
  connect(sender, receiver);
  ASSERT_TRUE(is_ok(receiver.ask("use 0")));
  for (const std::uint64_t size : kSizes) {
    ASSERT_TRUE(is_ok(sender.prepare(1, size, "cuda:1")));
    for (const char* const place : {"cpu", "cuda:0"}) {
      ASSERT_TRUE(is_ok(sender.send()));
      const std::string answer = receiver.receive(1, size, "there");
      EXPECT_TRUE(is_error(answer, "unsupported_device", "000000000001"));
      EXPECT_TRUE(is_error(answer, "unsupported_device", "CUDA_VISIBLE_DEVICES"));
      EXPECT_EQ(receiver.receive(1, size, place), "ok " + std::string(place));
    }
  }
}

TEST_P(GpuProcesses, ASubscriberThatUsesNoCudaIsNotMadeTo) {
  GpuPeer publisher("camera", GetParam());
  GpuPeer subscriber("planner", GetParam(), {{"TENDON_CUDA", "off"}});
  subscribe(publisher, subscriber);
  for (const std::uint64_t size : kSizes) {
    ASSERT_TRUE(is_ok(publisher.prepare(size, size, "cuda:0")));
    ASSERT_TRUE(is_ok(publisher.ask("publish")));
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(
          is_error(subscriber.take(size, size, "there"), "unsupported_device", "device=\"cpu\""));
    EXPECT_EQ(subscriber.take(size, size, "cpu"), "ok cpu");
  }
  EXPECT_EQ(subscriber.calls("cuInit"), 0u);
}

TEST_P(GpuProcesses, ASampleArrivesOnTheSameGpuUnderAnotherNumber) {
  const std::string zeros(30, '0');
  GpuPeer publisher("camera", GetParam());
  GpuPeer subscriber("planner", GetParam(),
                     {{"TENDON_CUDA_DOUBLE_UUIDS", zeros + "01," + zeros + "00"}});
  subscribe(publisher, subscriber);
  ASSERT_TRUE(is_ok(subscriber.ask("use 0")));
  for (const std::uint64_t size : kSizes) {
    ASSERT_TRUE(is_ok(publisher.prepare(1, size, "cuda:0")));
    ASSERT_TRUE(is_ok(publisher.ask("publish")));
    EXPECT_EQ(subscriber.take(1, size, "there"), "ok cuda:1");
    ASSERT_TRUE(is_ok(publisher.prepare(2, size, "cuda:1")));
    ASSERT_TRUE(is_ok(publisher.ask("publish")));
    EXPECT_EQ(subscriber.take(2, size, "there"), "ok cuda:0");
  }
}

// Death

TEST_P(GpuProcesses, ASenderThatIsKilledInItsSendDeliversNothing) {
  for (const std::uint64_t size : kSizes) {
    for (const char* const command : {"send", "send-async"}) {
      GpuPeer sender("victim", GetParam());
      GpuPeer receiver("receiver", GetParam());
      connect(sender, receiver);
      ASSERT_TRUE(is_ok(receiver.ask("use 0")));
      ASSERT_TRUE(is_ok(sender.prepare(1, size, "cuda:0")));
      ASSERT_TRUE(is_ok(sender.send())) << "so that the schema is known";
      EXPECT_EQ(receiver.receive(1, size, "there"), "ok cuda:0");
      ASSERT_TRUE(is_ok(sender.ask("gate")));
      const std::string begun = sender.ask(command);
      EXPECT_TRUE(begun == "sending" || begun == "ok") << begun;
      EXPECT_TRUE(is_error(receiver.receive(1, size, "there", "0"), "timeout"));
      sender.kill_and_wait();
      EXPECT_TRUE(is_error(receiver.receive(1, size, "there"), "peer_lost", "victim")) << command;
    }
  }
}

TEST_P(GpuProcesses, AReceiverThatIsKilledEndsASendThatWaitsForItsGpu) {
  for (const std::uint64_t size : kSizes) {
    for (const bool is_async : {false, true}) {
      GpuPeer sender("sender", GetParam());
      GpuPeer receiver("victim", GetParam());
      connect(sender, receiver);
      ASSERT_TRUE(is_ok(sender.prepare(1, size, "cuda:0")));
      ASSERT_TRUE(is_ok(sender.ask("gate")));
      if (is_async)
        ASSERT_TRUE(is_ok(sender.ask("send-async")));
      else
        sender.begin_send();
      receiver.kill_and_wait();
      sender.open_gate();
      const std::string answer = is_async ? sender.ask("wait") : sender.line();
      // This send may have left before the sender saw the end of the peer; the next one has not.
      EXPECT_TRUE(is_ok(answer) || is_error(answer, "peer_lost", "victim")) << answer;
      EXPECT_TRUE(is_error(sender.receive(0, 0, "there"), "peer_lost", "victim"));
      EXPECT_TRUE(is_error(sender.send(), "peer_lost", "victim"));
      sender.tell("exit");
      EXPECT_TRUE(exited_with(sender.wait(), 0));
    }
  }
}

// Fork

TEST_P(GpuProcesses, AForkedChildReachesNoDriverAndItsParentGoesOn) {
  for (const std::uint64_t size : kSizes) {
    GpuPeer sender("sender", GetParam());
    GpuPeer parent("parent", GetParam());
    connect(sender, parent);
    ASSERT_TRUE(is_ok(parent.ask("use 0")));
    ASSERT_TRUE(is_ok(sender.prepare(1, size, "cuda:0")));
    ASSERT_TRUE(is_ok(parent.prepare(2, size, "cuda:1")));
    ASSERT_TRUE(is_ok(sender.send()));
    EXPECT_EQ(parent.receive(1, size, "there"), "ok cuda:0");
    ASSERT_TRUE(is_ok(sender.send()));  // this parent waits meanwhile
    ASSERT_TRUE(is_ok(parent.ask("child")));
    EXPECT_EQ(parent.receive(1, size, "there"), "ok cuda:0");
    ASSERT_TRUE(is_ok(parent.ask("release")));
    ASSERT_TRUE(is_ok(parent.send()));
    ASSERT_TRUE(is_ok(sender.ask("use 0")));
    EXPECT_EQ(sender.receive(2, size, "there"), "ok cuda:1");
    parent.tell("exit");
    EXPECT_TRUE(exited_with(parent.wait(), 0));
  }
}

// The end of a Context

TEST_P(GpuProcesses, CloseWaitsForASendWhoseGpuIsSlow) {
  for (const std::uint64_t size : kSizes) {
    SentBehindGate ends(GetParam(), size);
    auto& [sender, receiver] = ends;
    EXPECT_TRUE(is_error(sender.ask("close 0"), "timeout"));
    sender.tell("close");
    EXPECT_TRUE(is_error(receiver.receive(1, size, "there", "10"), "timeout"));
    sender.open_gate();
    EXPECT_EQ(receiver.receive(1, size, "there"), "ok cuda:0");
    EXPECT_TRUE(is_ok(sender.line()));
    EXPECT_TRUE(is_error(receiver.receive(1, size, "there"), "end_of_stream"));
  }
}

TEST_P(GpuProcesses, AnExitLingersForASendWhoseGpuIsSlow) {
  for (const std::uint64_t size : kSizes) {
    SentBehindGate ends(GetParam(), size, {"--linger-ms", "60000"});
    auto& [sender, receiver] = ends;
    sender.tell("exit");
    EXPECT_TRUE(is_error(receiver.receive(1, size, "there", "10"), "timeout"));
    sender.open_gate();
    EXPECT_EQ(receiver.receive(1, size, "there"), "ok cuda:0");
    EXPECT_TRUE(is_error(receiver.receive(1, size, "there"), "end_of_stream"));
    EXPECT_TRUE(exited_with(sender.wait(), 0));
  }
}

TEST_P(GpuProcesses, AContextThatDoesNotLingerEndsWhileAGpuHasItsBatch) {
  for (const std::uint64_t size : kSizes) {
    SentBehindGate ends(GetParam(), size, {"--linger-ms", "0"});
    auto& [sender, receiver] = ends;
    ASSERT_TRUE(is_ok(sender.ask("drop-all")));
    const std::string answer = receiver.receive(1, size, "cpu");
    EXPECT_TRUE(answer.starts_with("error ") && !answer.starts_with("error timeout")) << answer;
    sender.open_gate();
    ASSERT_TRUE(is_ok(sender.ask("use 1"))) << "the device thread lives";
    sender.tell("exit");
    EXPECT_TRUE(exited_with(sender.wait(), 0));
  }
}

// A lost context

TEST_P(GpuProcesses, ALostContextCostsItsTensorsAndNoPipe) {
  GpuPeer healthy("healthy", GetParam());
  GpuPeer lost("lost", GetParam());
  connect(healthy, lost);
  for (const std::uint64_t size : kSizes) {
    if (size == kSizes[0]) {
      ASSERT_TRUE(is_ok(lost.prepare(1, size, "cuda:0")));
      ASSERT_TRUE(is_ok(lost.ask("lose 0")));
      EXPECT_TRUE(is_error(lost.send(), "device_lost", "cuda:0"));
      ASSERT_TRUE(is_ok(lost.ask("send-async")));
      EXPECT_TRUE(is_error(lost.ask("wait"), "device_lost", "cuda:0"));
    }
    ASSERT_TRUE(is_ok(healthy.prepare(2, size, "cuda:0")));
    ASSERT_TRUE(is_ok(healthy.send()));
    EXPECT_TRUE(is_error(lost.receive(2, size, "there"), "device_lost", "cuda:0"));
    EXPECT_TRUE(is_error(lost.receive(2, size, "cuda:0"), "device_lost", "cuda:0"));
    EXPECT_EQ(lost.receive(2, size, "cpu"), "ok cpu");
    ASSERT_TRUE(is_ok(healthy.send()));
    EXPECT_EQ(lost.receive(2, size, "cuda:1"), "ok cuda:1") << "the other GPU is sound";
    ASSERT_TRUE(is_ok(lost.prepare(3, size, "cpu")));
    ASSERT_TRUE(is_ok(lost.send()));
    EXPECT_EQ(healthy.receive(3, size, "there"), "ok cpu");
    ASSERT_TRUE(is_ok(lost.prepare(4, size, "cuda:1")));
    ASSERT_TRUE(is_ok(lost.send()));
    EXPECT_EQ(healthy.receive(4, size, "there"), "ok cuda:1");
  }
  lost.tell("exit");
  EXPECT_TRUE(exited_with(lost.wait(), 0));
}

TEST_P(GpuProcesses, AnAsynchronousSendEndsWithTheContextOfItsGpu) {
  for (const std::uint64_t size : kSizes) {
    SentBehindGate ends(GetParam(), size);
    auto& [sender, receiver] = ends;
    ASSERT_TRUE(is_ok(sender.ask("lose 0")));
    EXPECT_TRUE(is_error(sender.ask("wait"), "device_lost", "cuda:0"));
    EXPECT_TRUE(is_error(receiver.receive(1, size, "cpu", "0"), "timeout"));
    ASSERT_TRUE(is_ok(sender.prepare(2, size, "cpu")));
    ASSERT_TRUE(is_ok(sender.send()));
    EXPECT_EQ(receiver.receive(2, size, "there"), "ok cpu");
    sender.open_gate();
    sender.tell("exit");
    EXPECT_TRUE(exited_with(sender.wait(), 0));
  }
}

}  // namespace
}  // namespace tendon::test
