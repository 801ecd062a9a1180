// SPDX-License-Identifier: Apache-2.0
#include "control/flows/zap_door.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/strangers.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kKeyText = 40;
// A question has six frames and the credentials.
constexpr std::size_t kMaxFrames = 8;

}  // namespace

Result<std::unique_ptr<ZapDoor>> ZapDoor::open(zmq::context_t& context) {
  zmq::socket_t socket(context, zmq::socket_type::rep);
  socket.set(zmq::sockopt::linger, 0);
  socket.bind("inproc://zeromq.zap.01");
  auto door = std::make_unique<ZapDoor>(std::move(socket));
  TENDON_TRY(thread, Thread::start({.name = "tendon-zap",
                                    .where = "control.bind",
                                    .task = "that lets in the workers of the roster"},
                                   [self = door.get()] { self->run(); }));
  door->thread_ = std::move(thread);
  return door;
}

void ZapDoor::let_in(const std::vector<std::string>& public_keys) {
  std::set<std::string> keys;
  for (const std::string& text : public_keys) {
    std::array<std::uint8_t, kKeyBytes> key{};
    if (text.size() != kKeyText || zmq_z85_decode(key.data(), text.c_str()) == nullptr) continue;
    keys.emplace(reinterpret_cast<const char*>(key.data()), key.size());
  }
  const Lock lock(mutex_);
  keys_ = std::move(keys);
}

bool ZapDoor::may_enter(const std::string& mechanism, const std::string& key) {
  const Lock lock(mutex_);
  return mechanism == "CURVE" && keys_.contains(key);
}

void ZapDoor::run() {
  try {
    while (true) {
      std::vector<std::string> frames;
      bool more = true;
      while (more) {
        zmq::message_t frame;
        if (!socket_.recv(frame)) break;
        more = frame.more();
        if (frames.size() < kMaxFrames) frames.push_back(frame.to_string());
      }
      // version, request id, domain, address, identity, mechanism, credentials
      if (frames.size() < 6) frames.resize(6);
      const bool may = may_enter(frames[5], frames.size() > 6 ? frames[6] : std::string());
      if (!may) {
        refuse_stranger(nullptr, "control.bind", {frames[3], frames[3]},
                        "it has no key of a worker of this roster");
      }
      const std::array<std::string_view, 6> reply{
          "1.0", frames[1], may ? "200" : "400", may ? "OK" : "not a worker of this roster",
          "",    ""};
      for (std::size_t i = 0; i < reply.size(); ++i) {
        (void)socket_.send(zmq::const_buffer(reply[i].data(), reply[i].size()),
                           i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
      }
    }
  } catch (const zmq::error_t&) {
    socket_.close();  // the context is about to end: it waits for this
  }
}

}  // namespace tendon::v0::detail
