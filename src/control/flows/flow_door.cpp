// SPDX-License-Identifier: Apache-2.0
#include "control/flows/flow_door.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::milliseconds kForEver{-1};

/// Names are global in the context, and no two sockets may have the same.
std::string next_name() {
  static std::atomic<std::uint64_t> last{0};
  return "inproc://tendon-flow-" + std::to_string(++last);
}

zmq::socket_t make_pair(zmq::context_t& context) {
  zmq::socket_t socket(context, zmq::socket_type::pair);
  socket.set(zmq::sockopt::linger, 0);
  return socket;
}

}  // namespace

Result<std::unique_ptr<FlowDoor>> FlowDoor::open(zmq::context_t& context) {
  const std::string name = next_name();
  zmq::socket_t told = make_pair(context);
  told.bind(name);
  zmq::socket_t tells = make_pair(context);
  tells.connect(name);
  auto door = std::make_unique<FlowDoor>(context, std::move(told), std::move(tells));
  TENDON_TRY(thread, Thread::start({.name = "tendon-flows",
                                    .where = "control.bind",
                                    .task = "that watches the handshakes of flows"},
                                   [self = door.get()] { self->run(); }));
  door->thread_ = std::move(thread);
  return door;
}

Result<void> FlowDoor::watch(zmq::socket_t& socket) {
  TENDON_TRY(places, FlowPlaces::open());
  const std::string name = next_name();
  if (zmq_socket_monitor(socket.handle(), name.c_str(),
                         ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_MONITOR_STOPPED) != 0)
    throw zmq::error_t();
  zmq::socket_t events = make_pair(context_);
  events.connect(name);
  const Lock lock(mutex_);
  new_.push_back({std::move(events), std::move(places)});
  (void)tells_.send(zmq::const_buffer("", 0), zmq::send_flags::dontwait);
  return {};
}

void FlowDoor::take_new(std::vector<Flow>& flows) {
  zmq::message_t word;
  while (told_.recv(word, zmq::recv_flags::dontwait)) {
  }
  const Lock lock(mutex_);
  std::ranges::move(new_, std::back_inserter(flows));
  new_.clear();
}

bool FlowDoor::take_events(Flow& flow) {
  zmq::message_t event;
  while (flow.events.recv(event, zmq::recv_flags::dontwait)) {
    // The number of the event and a value, and in a second frame the endpoint.
    std::uint16_t kind = 0;
    std::uint32_t value = 0;
    if (event.size() >= sizeof kind + sizeof value) {
      std::memcpy(&kind, event.data(), sizeof kind);
      std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof kind, sizeof value);
    }
    zmq::message_t endpoint;
    if (event.more()) (void)flow.events.recv(endpoint);
    if (kind == ZMQ_EVENT_MONITOR_STOPPED) return false;
    if (kind == ZMQ_EVENT_ACCEPTED) {
      flow.places.accepted(static_cast<int>(value), endpoint.to_string_view(),
                           std::chrono::steady_clock::now());
    }
  }
  return true;
}

void FlowDoor::run() {
  std::vector<Flow> flows;
  while (true) {
    try {
      std::vector<zmq::pollitem_t> items{{told_.handle(), 0, ZMQ_POLLIN, 0}};
      for (Flow& flow : flows) items.push_back({flow.events.handle(), 0, ZMQ_POLLIN, 0});
      (void)zmq::poll(items, kForEver);
      std::erase_if(flows, [](Flow& flow) { return !take_events(flow); });
      take_new(flows);
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      break;  // the context is about to end: it waits for these sockets
    }
  }
  told_.close();
  const Lock lock(mutex_);
  tells_.close();
  new_.clear();
}

}  // namespace tendon::v0::detail
