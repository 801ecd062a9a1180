// SPDX-License-Identifier: Apache-2.0
#include "control/flows/zmq_network.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/control/limits.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <utility>
#include <zmq.hpp>

#include "control/flows/flow_door.hpp"
#include "control/flows/ipc_names.hpp"
#include "control/flows/zap_door.hpp"
#include "core/fork_guard.hpp"
#include "core/left_to_parent.hpp"
#include "core/process_wide.hpp"
#include "core/text.hpp"
#include "core/thread_room.hpp"
#include "session/bind_permission.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// The limit behind the back-pressure by steps in flight [messages].
constexpr int kQueuedMessages = 64;
// Outputs of one connection that wait here: further ones wait at their sender.
constexpr int kQueuedOutputs = 4;
// The envelope alone: a signal has no payload.
constexpr std::int64_t kMaxSignalBytes = 65536;
constexpr int kSubscriptionsAtOnce = 256;
// Where only subscriptions arrive, the longest message is one of the handshake of CURVE.
constexpr std::int64_t kMaxSubscriptionBytes = 4096;
// A context starts one thread that closes sockets and one that moves bytes. If one of them cannot
// start, ZeroMQ ends the process.
constexpr std::size_t kThreadsOfZmq = 2;
// An envelope around the largest payload.
constexpr std::int64_t kMaxMessageBytes = static_cast<std::int64_t>(kMaxStepPayloadBytes) + 65536;
// The prefixes of endpoints (StepEndpoints).
constexpr std::string_view kIpc = "ipc:";
constexpr std::string_view kTcp = "tcp:";
constexpr std::chrono::milliseconds kOutputsLinger{1000};
constexpr std::chrono::milliseconds kLongestPoll{1000};

Error failure(std::string_view where, const std::string& what, const zmq::error_t& error) {
  return system_error(where, what, error.num());
}

/// A ZeroMQ object that a forked child neither touches nor closes: it belongs to the parent.
template <class T>
class InThisProcess {
 public:
  explicit InThisProcess(T object)
      : object_(std::make_unique<T>(std::move(object))), process_(process_number()) {}
  InThisProcess(InThisProcess&&) noexcept = default;
  InThisProcess& operator=(InThisProcess&& other) noexcept {
    if (this != &other) {
      drop();
      object_ = std::move(other.object_);
      process_ = other.process_;
    }
    return *this;
  }
  InThisProcess(const InThisProcess&) = delete;
  InThisProcess& operator=(const InThisProcess&) = delete;
  ~InThisProcess() { drop(); }

  [[nodiscard]] T* get() const noexcept {
    return process_ == process_number() ? object_.get() : nullptr;
  }

 private:
  void drop() noexcept {
    if (process_ != process_number()) {
      (void)object_.release();  // NOLINT(bugprone-unused-return-value): the parent's
    }
    object_.reset();
  }

  std::unique_ptr<T> object_;
  std::uint32_t process_;
};

using ZmqContext = InThisProcess<zmq::context_t>;
using Socket = InThisProcess<zmq::socket_t>;

/// Never used, never ended. ZeroMQ ends the library under it (OpenPGM) with its last context and
/// starts it again with the next one, and two threads that do so at once collide in it.
constinit MadeOnce<zmq::context_t> one_context_is_left;

Error forked(std::string_view where) {
  return Error{ErrorCode::forked, where, "these flows belong to the process before fork"};
}

zmq::socket_t make_socket(zmq::context_t& context, zmq::socket_type type,
                          std::chrono::milliseconds linger) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::sndhwm, kQueuedMessages);
  socket.set(zmq::sockopt::rcvhwm, kQueuedMessages);
  socket.set(zmq::sockopt::sndtimeo, 0);
  socket.set(zmq::sockopt::rcvtimeo, 0);
  socket.set(zmq::sockopt::linger, static_cast<int>(linger.count()));
  socket.set(zmq::sockopt::maxmsgsize, kMaxMessageBytes);
  // ZeroMQ would keep a silent connection, and its descriptor, for half a minute.
  socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(kFlowHandshakeTimeout.count()));
  return socket;
}

/// For sockets between hosts.
struct Guarded {
  std::string secret_key;
  std::shared_ptr<FlowDoor> door;  // null: within one host
};

/// Makes a socket of a controller. Between hosts only workers with a key of the roster are
/// admitted.
Result<zmq::socket_t> make_bound(zmq::context_t& context, zmq::socket_type type,
                                 const Guarded& guarded) {
  zmq::socket_t socket = make_socket(context, type, std::chrono::milliseconds(0));
  if (guarded.door == nullptr) return socket;
  TENDON_CHECK(guarded.door->watch(socket));
  socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, guarded.secret_key);
  socket.set(zmq::sockopt::zap_domain, "tendon");
  return socket;
}

/// Kept beside the context of a roster's sockets.
struct Security {
  std::string server_key = {};  // empty: within one host
  CurveKeys own = {};
};

void secure(zmq::socket_t& socket, const Security& security) {
  if (security.server_key.empty()) return;
  socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::curve_serverkey, security.server_key);
  socket.set(zmq::sockopt::curve_publickey, security.own.public_key);
  socket.set(zmq::sockopt::curve_secretkey, security.own.secret_key);
}

/// Sends without waiting; false when the queue is full.
bool try_send(zmq::socket_t& socket, Bytes message) {
  return socket.send(zmq::const_buffer(message.data(), message.size()), zmq::send_flags::dontwait)
      .has_value();
}

std::optional<Storage> try_take(zmq::socket_t& socket) {
  const auto message = std::make_shared<zmq::message_t>();
  try {
    if (!socket.recv(*message, zmq::recv_flags::dontwait)) return std::nullopt;
  } catch (const zmq::error_t&) {
    return std::nullopt;  // interrupted, or about to end: the caller's deadline decides
  }
  return Storage(message, static_cast<std::byte*>(message->data()), message->size(),
                 Access::read_only);
}

/// Waits until one of the items is ready or the deadline passes. An interrupted wait returns early,
/// and so does a long one.
void poll(std::span<zmq::pollitem_t> items, Deadline deadline) {
  const auto left = std::min(std::chrono::ceil<std::chrono::milliseconds>(std::min(
                                 deadline.remaining(), std::chrono::nanoseconds(kLongestPoll))),
                             kLongestPoll);
  try {
    (void)zmq::poll(items.data(), items.size(), left);
  } catch (const zmq::error_t&) {  // NOLINT(bugprone-empty-catch): as after an early return
  }
}

/// Makes the socket of StepInputs, at first and again.
struct InputsSocket {
  std::function<Result<zmq::socket_t>()> make;
  std::string host;  // empty: the runtime directory
  std::size_t most_subscriptions = 0;
};

class ZmqControllerSockets final : public ControllerSockets {
 public:
  ZmqControllerSockets(std::shared_ptr<ZmqContext> context, Socket inputs, Socket outputs,
                       Socket microbatches, StepEndpoints endpoints, IpcNames names,
                       InputsSocket again)
      : context_(std::move(context)),
        outputs_(std::move(outputs)),
        microbatches_(std::move(microbatches)),
        endpoints_(std::move(endpoints)),
        again_(std::move(again)),
        inputs_(std::move(inputs)),
        names_(std::move(names)) {}
  ~ZmqControllerSockets() override {
    if (outputs_.get() != nullptr) {
      const Lock lock(mutex_);
      names_.remove();  // not in a forked child; ZeroMQ leaves them
    }
  }

  [[nodiscard]] StepEndpoints endpoints() const override { return endpoints_; }

  [[nodiscard]] Result<void> publish(Bytes message) override {
    if (outputs_.get() == nullptr) return forked("control.publish");
    const Lock lock(mutex_);
    try {
      count_subscriptions();
      if (subscriptions_ > again_.most_subscriptions) TENDON_CHECK(drop_strangers());
      if (!is_bound_) TENDON_CHECK(bind_again());
      // A subscriber with a full queue misses it: a worker asks for it, a stranger may not.
      (void)try_send(*inputs_.get(), message);
    } catch (const zmq::error_t& error) {
      return failure("control.publish", "zmq_send", error);
    }
    return {};
  }

  [[nodiscard]] std::optional<Storage> take() override {
    if (outputs_.get() == nullptr) return std::nullopt;
    if (auto message = try_take(*outputs_.get())) return message;
    return try_take(*microbatches_.get());
  }

  void wait(int wake_fd, Deadline deadline) override {
    if (outputs_.get() == nullptr) return;
    {
      const Lock lock(mutex_);
      names_.look({inputs_.get(), outputs_.get(), microbatches_.get()});
    }
    std::array items{zmq::pollitem_t{outputs_.get()->handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{microbatches_.get()->handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{nullptr, wake_fd, ZMQ_POLLIN, 0}};
    poll(items, deadline);
  }

 private:
  // Workers subscribe to everything, which ZeroMQ reports once.
  void count_subscriptions() TENDON_REQUIRES(mutex_) {
    for (int i = 0; i < kSubscriptionsAtOnce; ++i) {
      const auto said = try_take(*inputs_.get());
      if (!said) return;
      const bool begins = said->size_bytes() != 0 && said->bytes().front() == std::byte{1};
      if (begins)
        ++subscriptions_;
      else if (subscriptions_ != 0)
        --subscriptions_;
    }
  }
  // ZeroMQ keeps each of their subscriptions, and cannot end one connection.
  [[nodiscard]] Result<void> drop_strangers() TENDON_REQUIRES(mutex_) {
    log(LogLevel::warn, "control.inputs",
        std::to_string(subscriptions_) +
            " subscriptions have come to the flow of StepInputs, which workers do not make: its "
            "connections are made anew");
    TENDON_TRY(inputs, again_.make());
    inputs_ = Socket(std::move(inputs));
    subscriptions_ = 0;
    is_bound_ = false;
    return {};
  }
  // Messages that are published meanwhile are lost, and asked for again.
  [[nodiscard]] Result<void> bind_again() TENDON_REQUIRES(mutex_) {
    if (again_.host.empty()) {
      TENDON_CHECK(names_.give(0, *inputs_.get()));
    } else {
      try {
        inputs_.get()->bind("tcp://" + again_.host + ":" + endpoints_.inputs.substr(kTcp.size()));
      } catch (const zmq::error_t& error) {
        if (error.num() != EADDRINUSE) throw;
        return {};  // the former socket is still being closed
      }
    }
    is_bound_ = true;
    return {};
  }

  const std::shared_ptr<ZmqContext> context_;  // ends after the sockets
  Socket outputs_;
  Socket microbatches_;
  const StepEndpoints endpoints_;
  const InputsSocket again_;
  Mutex mutex_;  // publish() and wait() may be called at once
  Socket inputs_ TENDON_GUARDED_BY(mutex_);
  IpcNames names_ TENDON_GUARDED_BY(mutex_);
  std::size_t subscriptions_ TENDON_GUARDED_BY(mutex_) = 0;
  bool is_bound_ TENDON_GUARDED_BY(mutex_) = true;
};

class ZmqWorkerSockets final : public WorkerSockets {
 public:
  ZmqWorkerSockets(std::shared_ptr<ZmqContext> context, StepEndpoints places, Security security)
      : context_(std::move(context)),
        places_(std::move(places)),
        security_(std::move(security)),
        inputs_(subscribe(*context_->get(), places_.inputs, security_)),
        outputs_(push(*context_->get(), places_.outputs, security_)),
        microbatches_(push(*context_->get(), places_.microbatches, security_)) {}

  static Socket subscribe(zmq::context_t& context, const std::string& endpoint,
                          const Security& security) {
    zmq::socket_t socket =
        make_socket(context, zmq::socket_type::sub, std::chrono::milliseconds(0));
    secure(socket, security);
    socket.set(zmq::sockopt::subscribe, "");
    socket.connect(endpoint);
    return Socket(std::move(socket));
  }
  static Socket push(zmq::context_t& context, const std::string& endpoint,
                     const Security& security) {
    zmq::socket_t socket = make_socket(context, zmq::socket_type::push, kOutputsLinger);
    secure(socket, security);
    socket.connect(endpoint);
    return Socket(std::move(socket));
  }

  [[nodiscard]] Result<void> send(v1::Flow flow, Bytes message, Deadline deadline) override {
    zmq::socket_t* socket = (flow == v1::FLOW_STEP_OUTPUTS ? outputs_ : microbatches_).get();
    if (socket == nullptr) return forked("control.send");
    try {
      while (!try_send(*socket, message)) {
        if (deadline.has_passed()) {
          return Error{ErrorCode::timeout, "control.send",
                       "the controller reads no outputs: " + std::to_string(kQueuedMessages) +
                           " messages wait"};
        }
        std::array items{zmq::pollitem_t{socket->handle(), 0, ZMQ_POLLOUT, 0}};
        poll(items, deadline);
      }
    } catch (const zmq::error_t& error) {
      return failure("control.send", "zmq_send", error);
    }
    return {};
  }

  [[nodiscard]] std::optional<Storage> take() override {
    return inputs_.get() == nullptr ? std::nullopt : try_take(*inputs_.get());
  }

  void wait(int wake_fd, Deadline deadline) override {
    if (inputs_.get() == nullptr) return;
    std::array items{zmq::pollitem_t{inputs_.get()->handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{nullptr, wake_fd, ZMQ_POLLIN, 0}};
    poll(items, deadline);
  }

  [[nodiscard]] Result<void> reconnect(v1::Flow flow) override {
    zmq::context_t* context = context_->get();
    if (context == nullptr) return forked("control.reconnect");
    try {
      if (flow == v1::FLOW_STEP_INPUTS) {
        inputs_ = subscribe(*context, places_.inputs, security_);
        return {};
      }
      const bool outputs = flow == v1::FLOW_STEP_OUTPUTS;
      (outputs ? outputs_ : microbatches_) =
          push(*context, outputs ? places_.outputs : places_.microbatches, security_);
    } catch (const zmq::error_t& error) {
      return failure("control.reconnect", "zmq_connect", error);
    }
    return {};
  }

 private:
  std::shared_ptr<ZmqContext> context_;  // ends after the sockets
  StepEndpoints places_;                 // as ZeroMQ names them
  Security security_;
  Socket inputs_;
  Socket outputs_;
  Socket microbatches_;
};

class ZmqNetwork final : public StepNetwork {
 public:
  explicit ZmqNetwork(zmq::context_t context)
      : context_(std::make_shared<ZmqContext>(std::move(context))), process_(process_number()) {}
  ~ZmqNetwork() override {
    if (process_ != process_number()) {
      (void)door_.release();  // NOLINT(bugprone-unused-return-value): its thread is the parent's
      leave_to_parent(flows_);
      return;
    }
    if (door_ != nullptr) context_->get()->shutdown();  // ends its thread
  }

  [[nodiscard]] Result<std::shared_ptr<ControllerSockets>> bind(const StepPlace& place) override {
    zmq::context_t* context = context_->get();
    if (context == nullptr) return forked("control.bind");
    StepEndpoints endpoints;
    IpcNames names;
    CurveKeys keys;
    if (!place.host.empty()) {
      TENDON_CHECK(may_bind_host({place.profile}, place.host, "control.bind"));
      TENDON_TRY(made, make_keys());
      keys = std::move(made);
      endpoints.server_key = keys.public_key;
    }
    try {
      if (!place.host.empty()) {
        // Before anything is bound, so that nobody is admitted unasked.
        if (door_ == nullptr) {
          TENDON_TRY(door, ZapDoor::open(*context));
          door_ = std::move(door);
        }
        if (flows_ == nullptr) {
          TENDON_TRY(flows, FlowDoor::open(*context));
          flows_ = std::move(flows);
        }
        door_->let_in(place.worker_keys);
      }
      const Guarded guarded{keys.secret_key, place.host.empty() ? nullptr : flows_};
      InputsSocket again{.make = [context, place, guarded]() -> Result<zmq::socket_t> {
                           TENDON_TRY(inputs,
                                      make_bound(*context, zmq::socket_type::xpub, guarded));
                           inputs.set(zmq::sockopt::sndhwm, static_cast<int>(place.queued_inputs));
                           // Only subscriptions arrive here.
                           inputs.set(zmq::sockopt::maxmsgsize, kMaxSubscriptionBytes);
                           return inputs;
                         },
                         .host = place.host,
                         .most_subscriptions = place.most_subscriptions};
      TENDON_TRY(inputs, again.make());
      TENDON_TRY(inputs_at, bind_somewhere(inputs, place.host, names));
      TENDON_TRY(outputs, make_bound(*context, zmq::socket_type::pull, guarded));
      outputs.set(zmq::sockopt::rcvhwm, kQueuedOutputs);
      TENDON_TRY(outputs_at, bind_somewhere(outputs, place.host, names));
      TENDON_TRY(microbatches, make_bound(*context, zmq::socket_type::pull, guarded));
      microbatches.set(zmq::sockopt::maxmsgsize, kMaxSignalBytes);
      TENDON_TRY(microbatches_at, bind_somewhere(microbatches, place.host, names));
      endpoints.inputs = std::move(inputs_at);
      endpoints.outputs = std::move(outputs_at);
      endpoints.microbatches = std::move(microbatches_at);
      return std::shared_ptr<ControllerSockets>(std::make_shared<ZmqControllerSockets>(
          context_, Socket(std::move(inputs)), Socket(std::move(outputs)),
          Socket(std::move(microbatches)), std::move(endpoints), std::move(names),
          std::move(again)));
    } catch (const zmq::error_t& error) {
      return failure(
          "control.bind",
          "zmq_bind " + (place.host.empty() ? "in the runtime directory" : "at " + place.host),
          error);
    }
  }

  [[nodiscard]] Result<std::shared_ptr<WorkerSockets>> connect(const StepEndpoints& endpoints,
                                                               const std::string& host,
                                                               const CurveKeys& keys) override {
    if (context_->get() == nullptr) return forked("control.connect");
    StepEndpoints places;
    TENDON_TRY(inputs, place_of(endpoints.inputs, host));
    TENDON_TRY(outputs, place_of(endpoints.outputs, host));
    TENDON_TRY(microbatches, place_of(endpoints.microbatches, host));
    places.inputs = std::move(inputs);
    places.outputs = std::move(outputs);
    places.microbatches = std::move(microbatches);
    const bool between_hosts = places.inputs.starts_with("tcp");
    if (between_hosts && endpoints.server_key.size() != keys.public_key.size()) {
      return Error{ErrorCode::protocol_violation, "control.connect",
                   "the controller named no key for flows between hosts"};
    }
    try {
      return std::shared_ptr<WorkerSockets>(std::make_shared<ZmqWorkerSockets>(
          context_, std::move(places),
          between_hosts ? Security{.server_key = endpoints.server_key, .own = keys} : Security{}));
    } catch (const zmq::error_t& error) {
      return failure("control.connect", "zmq_connect", error);
    }
  }

  [[nodiscard]] Result<CurveKeys> make_keys() override {
    std::array<char, 41> public_key{};
    std::array<char, 41> secret_key{};
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
      return Error{ErrorCode::not_supported, "control.keys",
                   "this libzmq was built without CURVE, which flows between hosts need"};
    }
    return CurveKeys{.public_key = public_key.data(), .secret_key = secret_key.data()};
  }

 private:
  /// The endpoint as workers receive it.
  static Result<std::string> bind_somewhere(zmq::socket_t& socket, const std::string& host,
                                            IpcNames& names) {
    if (!host.empty()) {
      socket.bind("tcp://" + host + ":*");
      const auto bound = socket.get(zmq::sockopt::last_endpoint);
      return std::string(kTcp) + bound.substr(bound.rfind(':') + 1);
    }
    TENDON_TRY(name, names.bind(socket));
    return std::string(kIpc) + name;
  }

  static Result<std::string> place_of(const std::string& endpoint, const std::string& host) {
    const auto all_of = [](std::string_view text, std::string_view legal) {
      return !text.empty() && text.find_first_not_of(legal) == std::string_view::npos;
    };
    if (endpoint.starts_with(kIpc)) {
      const std::string name = endpoint.substr(kIpc.size());
      if (name.size() == 32 && all_of(name, "0123456789abcdef")) {
        TENDON_TRY(directory, runtime_directory());
        std::string path = directory + "/" + name;
        if (access(path.c_str(), F_OK) == 0) return "ipc://" + std::move(path);
        return Error{ErrorCode::not_supported, "control.connect",
                     "the controller's sockets are not in " + directory +
                         ", the runtime directory of this process: give both one "
                         "TENDON_RUNTIME_DIR"};
      }
    }
    if (endpoint.starts_with(kTcp)) {
      const std::string port = endpoint.substr(kTcp.size());
      if (port.size() <= 5 && all_of(port, "0123456789") && !host.empty()) {
        return "tcp://" + host + ":" + port;
      }
    }
    return Error{ErrorCode::protocol_violation, "control.connect",
                 "the controller named the endpoint '" + escaped(endpoint, 64) + "'"};
  }

  std::shared_ptr<ZmqContext> context_;
  std::uint32_t process_;
  std::unique_ptr<ZapDoor> door_;
  std::shared_ptr<FlowDoor> flows_;
};

}  // namespace

Result<std::shared_ptr<StepNetwork>> zmq_network() {
  try {
    TENDON_CHECK(check_room_for_threads(
        kThreadsOfZmq, {.name = "tendon-room", .where = "control.network", .task = "for ZeroMQ"}));
    (void)one_context_is_left.get([] { return std::make_unique<zmq::context_t>(1); });
    zmq::context_t context(1);
    context.set(zmq::ctxopt::blocky, 0);
    // The first socket starts them.
    zmq::socket_t(context, zmq::socket_type::pair).close();
    return std::shared_ptr<StepNetwork>(std::make_shared<ZmqNetwork>(std::move(context)));
  } catch (const zmq::error_t& error) {
    return failure("control.network", "zmq_ctx_new", error);
  }
}

}  // namespace tendon::v0::detail
