// SPDX-License-Identifier: Apache-2.0
#include "control/flows/zmq_network.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/time.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <tendon/control/limits.hpp>
#include <vector>
#include <zmq.hpp>

#include "control/flows/wake.hpp"
#include "session/machine.hpp"
#include "support/expect.hpp"
#include "support/log_lines.hpp"
#include "support/raw_socket.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using detail::ControllerSockets;
using detail::CurveKeys;
using detail::StepEndpoints;
using detail::StepNetwork;
using detail::StepPlace;
using detail::WorkerSockets;

class ZmqFlows : public testing::Test {
 protected:
  const std::shared_ptr<StepNetwork> controller_ = detail::zmq_network().value();
  const std::shared_ptr<StepNetwork> worker_ = detail::zmq_network().value();
  const std::unique_ptr<detail::UserEvent> never_ = detail::open_wake().value();

  /// Publishes until the message arrives: a subscription takes its time.
  bool hears(ControllerSockets& controller, WorkerSockets& worker, std::string_view text) {
    return eventually([&] {
      EXPECT_TRUE(succeeds(controller.publish(as_bytes(text))));
      worker.wait(never_->fd(), std::chrono::milliseconds(10));
      const auto message = worker.take();
      return message.has_value() && as_text(message->bytes()) == text;
    });
  }
  bool is_heard(ControllerSockets& controller, WorkerSockets& worker, v1::Flow flow,
                std::string_view text) {
    EXPECT_TRUE(succeeds(worker.send(flow, as_bytes(text), kPatience)));
    return eventually([&] {
      controller.wait(never_->fd(), std::chrono::milliseconds(10));
      const auto message = controller.take();
      return message.has_value() && as_text(message->bytes()) == text;
    });
  }
};

TEST_F(ZmqFlows, WithinOneHostGoThroughTheRuntimeDirectoryAndLeaveNothingThere) {
  StepEndpoints endpoints;
  {
    const auto controller = controller_->bind({}).value();
    endpoints = controller->endpoints();
    EXPECT_TRUE(endpoints.inputs.starts_with("ipc:")) << endpoints.inputs;
    EXPECT_EQ(endpoints.server_key, "");
    const auto worker = worker_->connect(endpoints, "127.0.0.1", {}).value();
    EXPECT_TRUE(hears(*controller, *worker, "inputs"));
    EXPECT_TRUE(is_heard(*controller, *worker, v1::FLOW_STEP_OUTPUTS, "outputs"));
    EXPECT_TRUE(is_heard(*controller, *worker, v1::FLOW_STEP_MICROBATCH_OUTPUTS, "signal"));
    ASSERT_TRUE(succeeds(worker->reconnect(v1::FLOW_STEP_INPUTS)));
    EXPECT_TRUE(hears(*controller, *worker, "after a new connection"));
  }
  const std::string path = detail::runtime_directory().value() + "/" + endpoints.inputs.substr(4);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(fails_with(worker_->connect(endpoints, "127.0.0.1", {}), ErrorCode::not_supported,
                         "TENDON_RUNTIME_DIR"));
}

TEST_F(ZmqFlows, WaitForNoSubscriberThatNeverReads) {
  const auto controller = controller_->bind({}).value();
  const auto strange = detail::zmq_network().value();
  const auto deaf = strange->connect(controller->endpoints(), "127.0.0.1", {}).value();
  const auto worker = worker_->connect(controller->endpoints(), "127.0.0.1", {}).value();
  ASSERT_TRUE(hears(*controller, *deaf, "the subscription has come"));
  ASSERT_TRUE(hears(*controller, *worker, "this one too"));
  const std::string message(1 << 20, 'x');
  for (int i = 0; i < 400; ++i) {
    // More than the queues hold, and the kernel's buffers of a socket.
    ASSERT_TRUE(succeeds(controller->publish(as_bytes(message)))) << i;
    ASSERT_TRUE(eventually([&] {
      worker->wait(never_->fd(), std::chrono::milliseconds(10));
      const auto taken = worker->take();
      return taken.has_value() && taken->size_bytes() == message.size();
    })) << i;
  }
}

// A stranger of the same user may connect: each connection keeps little.
TEST_F(ZmqFlows, KeepFewOutputsAndNoLargeSignals) {
  const auto controller = controller_->bind({}).value();
  const auto stranger = worker_->connect(controller->endpoints(), "127.0.0.1", {}).value();
  const std::string large(1 << 20, 'x');
  ASSERT_TRUE(
      succeeds(stranger->send(v1::FLOW_STEP_MICROBATCH_OUTPUTS, as_bytes(large), kPatience)));
  // The stranger fills the buffers of its side and of the kernel, and then waits. That takes ZeroMQ
  // longer than a brief wait.
  constexpr std::chrono::seconds kNothingMoves{2};
  Result<void> sent;
  std::size_t count = 0;
  while (sent.has_value() && count < 1000) {
    sent = stranger->send(v1::FLOW_STEP_OUTPUTS, as_bytes(large), kNothingMoves);
    ++count;
  }
  EXPECT_TRUE(fails_with(sent, ErrorCode::timeout));
  EXPECT_LT(count, 64U + 4U + 32U) << "its own queue, the controller's, and what lies in sockets";
  const auto other = detail::zmq_network().value();
  const auto worker = other->connect(controller->endpoints(), "127.0.0.1", {}).value();
  EXPECT_TRUE(is_heard(*controller, *worker, v1::FLOW_STEP_MICROBATCH_OUTPUTS, "signal"));
}

class ZmqSubscriptions : public ZmqFlows, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Hosts, ZmqSubscriptions, testing::Values("", "127.0.0.1"),
                         [](const auto& host) { return *host.param == 0 ? "One" : "Two"; });

TEST_P(ZmqSubscriptions, OfAFloodEndWithTheirConnections) {
  const std::string host = GetParam();
  const CurveKeys known = worker_->make_keys().value();
  const auto controller = controller_
                              ->bind({.host = host,
                                      .worker_keys = {known.public_key},
                                      .queued_inputs = 64,
                                      .most_subscriptions = 8})
                              .value();
  const StepEndpoints endpoints = controller->endpoints();
  const auto worker = worker_->connect(endpoints, "127.0.0.1", known).value();
  EXPECT_TRUE(hears(*controller, *worker, "before"));
  const LogLines lines;
  zmq::context_t context(1);
  zmq::socket_t greedy(context, zmq::socket_type::sub);
  greedy.set(zmq::sockopt::linger, 0);
  std::string place;
  if (host.empty()) {
    place = "ipc://" + detail::runtime_directory().value() + "/" + endpoints.inputs.substr(4);
  } else {
    place = "tcp://" + host + ":" + endpoints.inputs.substr(4);
    greedy.set(zmq::sockopt::curve_serverkey, endpoints.server_key);
    greedy.set(zmq::sockopt::curve_publickey, known.public_key);
    greedy.set(zmq::sockopt::curve_secretkey, known.secret_key);
  }
  greedy.connect(place);
  for (int i = 0; i < 20'000; ++i)
    greedy.set(zmq::sockopt::subscribe, "topic " + std::to_string(i));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(succeeds(controller->publish(as_bytes("x"))));
    return lines.have("subscriptions have come to the flow of StepInputs");
  }));
  greedy.close();
  EXPECT_TRUE(hears(*controller, *worker, "after"));
  EXPECT_TRUE(is_heard(*controller, *worker, v1::FLOW_STEP_OUTPUTS, "outputs"));
}

TEST_F(ZmqFlows, ComeBackUnderTheirNamesInADirectoryThatWasRemoved) {
  const ScratchDir scratch;
  const std::string directory = (scratch.path() / "run").string();
  const char* const former = getenv("TENDON_RUNTIME_DIR");
  const std::optional<std::string> kept =
      former ? std::optional<std::string>(former) : std::nullopt;
  setenv("TENDON_RUNTIME_DIR", directory.c_str(), 1);
  {
    const auto controller = controller_->bind({}).value();
    const StepEndpoints endpoints = controller->endpoints();
    const auto early = worker_->connect(endpoints, "127.0.0.1", {}).value();
    EXPECT_TRUE(hears(*controller, *early, "before"));
    std::filesystem::remove_all(directory);
    EXPECT_TRUE(eventually([&] {
      controller->wait(never_->fd(), std::chrono::milliseconds(10));
      return std::filesystem::exists(directory + "/" + endpoints.microbatches.substr(4));
    }));
    const auto late = worker_->connect(endpoints, "127.0.0.1", {}).value();
    EXPECT_TRUE(hears(*controller, *late, "after"));
    EXPECT_TRUE(is_heard(*controller, *late, v1::FLOW_STEP_OUTPUTS, "outputs"));
    EXPECT_TRUE(is_heard(*controller, *early, v1::FLOW_STEP_OUTPUTS, "outputs of before"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  if (kept)
    setenv("TENDON_RUNTIME_DIR", kept->c_str(), 1);
  else
    unsetenv("TENDON_RUNTIME_DIR");
}

TEST_F(ZmqFlows, BetweenHostsAreForTheKeysOfTheRosterAlone) {
  const CurveKeys known = worker_->make_keys().value();
  const CurveKeys stranger = worker_->make_keys().value();
  const auto controller =
      controller_->bind({.host = "127.0.0.1", .worker_keys = {known.public_key}}).value();
  const StepEndpoints endpoints = controller->endpoints();
  EXPECT_TRUE(endpoints.inputs.starts_with("tcp:")) << endpoints.inputs;
  const auto worker = worker_->connect(endpoints, "127.0.0.1", known).value();
  const auto other = worker_->connect(endpoints, "127.0.0.1", stranger).value();
  EXPECT_TRUE(succeeds(other->send(v1::FLOW_STEP_OUTPUTS, as_bytes("forged"), kPatience)));
  EXPECT_TRUE(hears(*controller, *worker, "inputs"));
  EXPECT_TRUE(is_heard(*controller, *worker, v1::FLOW_STEP_OUTPUTS, "outputs"));
  EXPECT_FALSE(other->take().has_value());
  EXPECT_FALSE(controller->take().has_value());

  // The next roster has keys of its own.
  const CurveKeys next = worker_->make_keys().value();
  const auto later =
      controller_->bind({.host = "127.0.0.1", .worker_keys = {next.public_key}}).value();
  const auto late = worker_->connect(later->endpoints(), "127.0.0.1", next).value();
  const auto outdated = worker_->connect(later->endpoints(), "127.0.0.1", known).value();
  EXPECT_TRUE(succeeds(outdated->send(v1::FLOW_STEP_OUTPUTS, as_bytes("old"), kPatience)));
  EXPECT_TRUE(hears(*later, *late, "inputs"));
  EXPECT_FALSE(outdated->take().has_value());
  EXPECT_FALSE(later->take().has_value());
}

// A connection that never sends a word must not keep its descriptor.
TEST_F(ZmqFlows, EndSilentConnections) {
  const CurveKeys known = worker_->make_keys().value();
  const auto controller =
      controller_->bind({.host = "127.0.0.1", .worker_keys = {known.public_key}}).value();
  const std::string inputs = controller->endpoints().inputs;
  const auto silent = connect_raw("127.0.0.1:" + inputs.substr(inputs.rfind(':') + 1));
  // ZeroMQ itself waits 30 s.
  const timeval patience{20, 0};
  setsockopt(silent.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char buffer[256];
  ssize_t got = 0;
  do {
    // The first bytes are its greeting.
    got = TEMP_FAILURE_RETRY(recv(silent.get(), buffer, sizeof buffer, 0));
  } while (got > 0);
  EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "it is still open";
}

TEST_F(ZmqFlows, KeepFewSilentConnectionsAndLetAWorkerIn) {
  const CurveKeys known = worker_->make_keys().value();
  const auto controller =
      controller_->bind({.host = "127.0.0.1", .worker_keys = {known.public_key}}).value();
  const StepEndpoints endpoints = controller->endpoints();
  const auto worker = worker_->connect(endpoints, "127.0.0.1", known).value();
  EXPECT_TRUE(hears(*controller, *worker, "before"));
  const LogLines lines;
  std::vector<detail::OwnedFd> silent;
  const std::string address = "127.0.0.1:" + endpoints.inputs.substr(4);
  // Other tests are refused from 127.0.0.1, and each address gets one line a second.
  while (silent.size() < 2 * kHandshakesPerFlow)
    silent.push_back(connect_raw(address, "127.0.0.7"));
  EXPECT_TRUE(eventually([&] { return lines.have("127.0.0.7"); }));
  const auto other = detail::zmq_network().value();
  const auto late = other->connect(endpoints, "127.0.0.1", known).value();
  EXPECT_TRUE(hears(*controller, *late, "late"));
  EXPECT_TRUE(hears(*controller, *worker, "after"));
}

TEST_F(ZmqFlows, AWorkerOpensNoPlaceThatThePeerChose) {
  for (const std::string_view place :
       {"ipc:../../etc/passwd", "ipc:", "ipc:0123", "tcp:99999999", "tcp:evil.example:80",
        "inproc:x", "ipc:0123456789abcdef0123456789abcdeF", ""}) {
    StepEndpoints endpoints;
    endpoints.inputs = endpoints.outputs = endpoints.microbatches = place;
    EXPECT_TRUE(
        fails_with(worker_->connect(endpoints, "127.0.0.1", {}), ErrorCode::protocol_violation))
        << place;
  }
}

}  // namespace
}  // namespace tendon::test
