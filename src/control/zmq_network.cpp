// SPDX-License-Identifier: Apache-2.0
#include "control/zmq_network.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <tendon/control/limits.hpp>
#include <utility>
#include <zmq.hpp>

#include "core/fork_guard.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// Steps in flight are the back-pressure; this is what stands behind it [messages].
constexpr int kQueuedMessages = 64;
// An envelope around the largest payload.
constexpr std::int64_t kMaxMessageBytes = static_cast<std::int64_t>(kMaxStepPayloadBytes) + 65536;
constexpr std::chrono::milliseconds kOutputsLinger{1000};
constexpr std::chrono::milliseconds kLongestPoll{1000};

Error failure(std::string_view where, const std::string& what, const zmq::error_t& error) {
  return system_error(where, what, error.num());
}

/// A ZeroMQ object that a forked child neither touches nor closes: it is the parent's.
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
  return socket;
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
    return std::nullopt;  // interrupted, or at its end: the caller's deadline decides
  }
  return Storage(message, static_cast<std::byte*>(message->data()), message->size(),
                 Access::read_only);
}

/// Until one of the items is ready or the deadline passes. An interrupted wait returns early, and
/// so does a long one.
void poll(std::span<zmq::pollitem_t> items, Deadline deadline) {
  const auto left = std::min(std::chrono::ceil<std::chrono::milliseconds>(std::min(
                                 deadline.remaining(), std::chrono::nanoseconds(kLongestPoll))),
                             kLongestPoll);
  try {
    (void)zmq::poll(items.data(), items.size(), left);
  } catch (const zmq::error_t&) {  // NOLINT(bugprone-empty-catch): as after an early return
  }
}

class ZmqControllerSockets final : public ControllerSockets {
 public:
  ZmqControllerSockets(std::shared_ptr<ZmqContext> context, Socket inputs, Socket outputs,
                       Socket microbatches, StepEndpoints endpoints)
      : context_(std::move(context)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        microbatches_(std::move(microbatches)),
        endpoints_(std::move(endpoints)) {}

  [[nodiscard]] StepEndpoints endpoints() const override { return endpoints_; }

  [[nodiscard]] Result<void> publish(Bytes message) override {
    zmq::socket_t* inputs = inputs_.get();
    if (inputs == nullptr) return forked("control.publish");
    try {
      while (try_take(*inputs)) continue;  // subscriptions: the probe tells more
      if (!try_send(*inputs, message)) {
        return Error{
            ErrorCode::timeout, "control.publish",
            "the queue of StepInputs is full: " + std::to_string(kQueuedMessages) + " messages"};
      }
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
    std::array items{zmq::pollitem_t{outputs_.get()->handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{microbatches_.get()->handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{nullptr, wake_fd, ZMQ_POLLIN, 0}};
    poll(items, deadline);
  }

 private:
  std::shared_ptr<ZmqContext> context_;  // ends after the sockets
  Socket inputs_;
  Socket outputs_;
  Socket microbatches_;
  StepEndpoints endpoints_;
};

class ZmqWorkerSockets final : public WorkerSockets {
 public:
  ZmqWorkerSockets(std::shared_ptr<ZmqContext> context, Socket inputs, Socket outputs,
                   Socket microbatches, StepEndpoints endpoints)
      : context_(std::move(context)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        microbatches_(std::move(microbatches)),
        endpoints_(std::move(endpoints)) {}

  static Socket subscribe(zmq::context_t& context, const std::string& endpoint) {
    zmq::socket_t socket =
        make_socket(context, zmq::socket_type::sub, std::chrono::milliseconds(0));
    socket.set(zmq::sockopt::subscribe, "");
    socket.connect(endpoint);
    return Socket(std::move(socket));
  }
  static Socket push(zmq::context_t& context, const std::string& endpoint) {
    zmq::socket_t socket = make_socket(context, zmq::socket_type::push, kOutputsLinger);
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
        inputs_ = subscribe(*context, endpoints_.inputs);
      } else if (flow == v1::FLOW_STEP_OUTPUTS) {
        outputs_ = push(*context, endpoints_.outputs);
      } else {
        microbatches_ = push(*context, endpoints_.microbatches);
      }
    } catch (const zmq::error_t& error) {
      return failure("control.reconnect", "zmq_connect", error);
    }
    return {};
  }

 private:
  std::shared_ptr<ZmqContext> context_;
  Socket inputs_;
  Socket outputs_;
  Socket microbatches_;
  StepEndpoints endpoints_;
};

class ZmqNetwork final : public StepNetwork {
 public:
  explicit ZmqNetwork(zmq::context_t context)
      : context_(std::make_shared<ZmqContext>(std::move(context))) {}

  [[nodiscard]] Result<std::shared_ptr<ControllerSockets>> bind() override {
    zmq::context_t* context = context_->get();
    if (context == nullptr) return forked("control.bind");
    StepEndpoints endpoints;
    TENDON_TRY(directory, runtime_directory());
    for (std::string* endpoint : {&endpoints.inputs, &endpoints.outputs, &endpoints.microbatches}) {
      // A name of this form is swept from the directory when its process died.
      TENDON_TRY(name, random_nonce());
      *endpoint = "ipc://" + rendezvous_path(directory, name);
    }
    try {
      zmq::socket_t inputs =
          make_socket(*context, zmq::socket_type::xpub, std::chrono::milliseconds(0));
      inputs.set(zmq::sockopt::xpub_nodrop, true);
      inputs.bind(endpoints.inputs);
      zmq::socket_t outputs =
          make_socket(*context, zmq::socket_type::pull, std::chrono::milliseconds(0));
      outputs.bind(endpoints.outputs);
      zmq::socket_t microbatches =
          make_socket(*context, zmq::socket_type::pull, std::chrono::milliseconds(0));
      microbatches.bind(endpoints.microbatches);
      return std::shared_ptr<ControllerSockets>(std::make_shared<ZmqControllerSockets>(
          context_, Socket(std::move(inputs)), Socket(std::move(outputs)),
          Socket(std::move(microbatches)), std::move(endpoints)));
    } catch (const zmq::error_t& error) {
      return failure("control.bind", "zmq_bind in " + directory, error);
    }
  }

  [[nodiscard]] Result<std::shared_ptr<WorkerSockets>> connect(
      const StepEndpoints& endpoints) override {
    zmq::context_t* context = context_->get();
    if (context == nullptr) return forked("control.connect");
    for (const std::string* endpoint :
         {&endpoints.inputs, &endpoints.outputs, &endpoints.microbatches}) {
      TENDON_CHECK(check_place(*endpoint));
    }
    try {
      return std::shared_ptr<WorkerSockets>(std::make_shared<ZmqWorkerSockets>(
          context_, ZmqWorkerSockets::subscribe(*context, endpoints.inputs),
          ZmqWorkerSockets::push(*context, endpoints.outputs),
          ZmqWorkerSockets::push(*context, endpoints.microbatches), endpoints));
    } catch (const zmq::error_t& error) {
      return failure("control.connect", "zmq_connect", error);
    }
  }

 private:
  /// A worker opens sockets of runtime directories alone, whatever the controller says.
  static Result<void> check_place(const std::string& endpoint) {
    constexpr std::string_view scheme = "ipc://";
    const std::size_t slash = endpoint.rfind('/');
    if (!endpoint.starts_with(scheme) || slash <= scheme.size()) {
      return Error{ErrorCode::protocol_violation, "control.connect",
                   "the controller named the endpoint '" + endpoint.substr(0, 128) +
                       "'; flows within one host are ipc:// sockets of the runtime directory"};
    }
    TENDON_TRY(directory, runtime_directory());
    if (endpoint.substr(scheme.size(), slash - scheme.size()) != directory) {
      return Error{ErrorCode::not_supported, "control.connect",
                   "the controller's sockets are not in " + directory +
                       ", the runtime directory of this process; a controller and its workers have "
                       "one runtime directory (TENDON_RUNTIME_DIR)"};
    }
    return {};
  }

  std::shared_ptr<ZmqContext> context_;
};

}  // namespace

Result<std::shared_ptr<StepNetwork>> zmq_network() {
  try {
    zmq::context_t context(1);
    context.set(zmq::ctxopt::blocky, 0);
    return std::shared_ptr<StepNetwork>(std::make_shared<ZmqNetwork>(std::move(context)));
  } catch (const zmq::error_t& error) {
    return failure("control.network", "zmq_ctx_new", error);
  }
}

std::string zmq_version() {
  const auto [major, minor, patch] = zmq::version();
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace tendon::v0::detail
