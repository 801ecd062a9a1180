// SPDX-License-Identifier: Apache-2.0
#include "runtime/strangers.hpp"

#include <memory>
#include <string>

#include "core/process_wide.hpp"
#include "runtime/context_core.hpp"
#include "session/holder.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {
namespace {

class TimedCount final : public Timed {
 public:
  void on_time() override { tell_refused_strangers(); }
};

/// One per process; the timers of any Context report its count.
struct Strangers {
  StrangerLog log;
  const std::shared_ptr<TimedCount> count = std::make_shared<TimedCount>();
};

Strangers& strangers() {
  static constinit PerProcess<Strangers> all;
  return all.get();
}

}  // namespace

Stranger stranger_at(const ByteStream& stream) {
  const StreamPeer& peer = stream.peer();
  if (peer.kind == PathKind::routed) return {"a node behind routers", "routers"};
  if (peer.user) {
    const std::string user = "a process of uid " + std::to_string(*peer.user);
    const auto pid = process_behind(stream.fd());
    return {pid ? user + ", pid " + std::to_string(*pid) : user, user};
  }
  const std::string connection = connection_text(stream.fd(), ConnectionEnd::acceptor);
  const std::string address = connection.substr(0, connection.find(" > "));
  if (address.empty()) return {"a connection without an address", ""};
  return {address, address.substr(0, address.rfind(':'))};
}

Stranger stranger_at(const Link& link) { return {link.peer_name(), link.peer_name()}; }

void refuse_stranger(ContextCore* context, std::string_view where, const Stranger& stranger,
                     std::string_view why) {
  Strangers& all = strangers();
  const auto due = all.log.refuse(context == nullptr ? std::string() : context->log_name(), where,
                                  stranger, why, StrangerLog::Clock::now());
  if (due && context != nullptr) (void)context->add_timed(Deadline::at(*due), all.count);
}

void tell_refused_strangers() { strangers().log.tell_left_out(); }

}  // namespace tendon::v0::detail
