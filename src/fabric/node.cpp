// SPDX-License-Identifier: Apache-2.0
// The handles of nodes, publishers, subscribers and responders.
#include <tendon/fabric/node.hpp>
#include <utility>

#include "core/left_to_parent.hpp"
#include "core/text.hpp"
#include "fabric/calls/caller.hpp"
#include "fabric/calls/responder_core.hpp"
#include "fabric/nodes/node_core.hpp"
#include "fabric/topics/publisher_core.hpp"
#include "fabric/topics/sample_delivery.hpp"
#include "fabric/topics/sample_thread.hpp"
#include "fabric/topics/subscriber_core.hpp"

namespace tendon::v0 {
namespace {

// Parses the key of an object that has only one: a publisher, a responder, a call.
Result<KeyExpression> parse_key(std::string_view text, std::string_view where,
                                std::string_view what) {
  TENDON_TRY(key, KeyExpression::parse(text));
  if (key.is_key()) return key;
  return Error{ErrorCode::invalid_argument, where,
               "'" + key.text() + "' is a set of keys: a " + std::string(what) +
                   " has one, without wildcards"};
}

}  // namespace

using detail::ContextCore;
using detail::NodeCore;
using detail::PublisherCore;
using detail::ResponderCore;
using detail::SampleThread;
using detail::SubscriberCore;

// Node

Result<Node> Node::join(Context& context, NodeOptions options, Deadline deadline) {
  return NodeCore::join(ContextCore::of(context), std::move(options), deadline);
}

Node::Node(std::shared_ptr<NodeCore> core) : core_(std::move(core)) {}
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&& other) noexcept {
  if (this != &other) {
    const Node old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}
Node::~Node() {
  if (core_ == nullptr) return;
  if (core_->context()->forked())
    detail::leave_to_parent(core_);
  else
    core_->close();
}

const std::string& Node::domain() const& noexcept { return core_->options().domain; }
const std::string& Node::name() const& noexcept { return core_->options().name; }
const std::string& Node::address() const& noexcept { return core_->address(); }
std::vector<EntityInfo> Node::publishers() const { return core_->publishers(); }
std::vector<EntityInfo> Node::subscribers() const { return core_->subscribers(); }
Result<void> Node::survey(Deadline deadline) { return core_->survey(deadline); }
std::vector<EntityInfo> Node::responders() const { return core_->responders(); }
Result<bool> Node::has_plain_subscribers(std::string_view keys, Deadline deadline) {
  TENDON_TRY(expression, KeyExpression::canonize(keys));
  return core_->has_plain_subscribers(expression, deadline);
}
std::vector<std::string> Node::nodes() const { return core_->nodes(); }
Result<PeerStats> Node::peer_stats(const std::string& name) const {
  return core_->peer_stats(name);
}
void Node::on_event(std::function<void(const FabricEvent&)> callback) {
  core_->on_event(std::move(callback));
}
Result<Reply> Node::call(std::string_view key, const TensorDict& request, Deadline deadline) {
  return call(key, request, {}, deadline);
}
Result<Reply> Node::call(std::string_view key, const TensorDict& request,
                         const std::stop_token& stop, Deadline deadline) {
  TENDON_CHECK(core_->context()->usable("node.call"));
  TENDON_TRY(parsed, parse_key(key, "node.call", "call"));
  return core_->caller().call(core_, {parsed, request, stop, deadline});
}
Result<CallAllReplies> Node::call_all(std::string_view key, const TensorDict& request,
                                      Deadline deadline) {
  return call_all(key, request, {}, deadline);
}
Result<CallAllReplies> Node::call_all(std::string_view key, const TensorDict& request,
                                      const std::stop_token& stop, Deadline deadline) {
  TENDON_CHECK(core_->context()->usable("node.call_all"));
  TENDON_TRY(parsed, parse_key(key, "node.call_all", "call"));
  return core_->caller().call_all(core_, {parsed, request, stop, deadline});
}
CallStats Node::call_stats() const { return core_->caller().stats(); }
void Node::close() { core_->close(); }

// Publisher

Result<Publisher> Publisher::declare(Node& node, std::string_view key, PublisherOptions options) {
  options.plain_peers = options.plain.over(options.plain_peers);
  options.qos.history = options.history.over(options.qos.history);
  options.qos.overflow = options.overflow.over(options.qos.overflow);
  options.qos.priority = options.priority.over(options.qos.priority);
  const auto& core = NodeCore::of(node);
  TENDON_CHECK(core->context()->usable("publisher.declare"));
  TENDON_TRY(topic, parse_key(key, "publisher.declare", "publisher"));
  TENDON_TRY(publisher, PublisherCore::create(core, std::move(topic), options));
  return Publisher(std::move(publisher));
}

Publisher::Publisher(std::shared_ptr<PublisherCore> core) : core_(std::move(core)) {}
Publisher::Publisher(Publisher&&) noexcept = default;
Publisher& Publisher::operator=(Publisher&& other) noexcept {
  if (this != &other) {
    const Publisher old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}
Publisher::~Publisher() {
  if (core_ == nullptr) return;
  if (core_->forked())
    detail::leave_to_parent(core_);
  else
    core_->end();
}

Result<Published> Publisher::publish(const TensorDict& sample, const OnStream& on) {
  return core_->publish(sample, std::nullopt, on);
}
Result<Published> Publisher::publish(const TensorDict& sample, Deadline deadline,
                                     const OnStream& on) {
  return core_->publish(sample, deadline, on);
}
Result<Published> Publisher::publish(Bytes sample) {
  return core_->publish(sample, core_->default_deadline());
}
Result<Published> Publisher::publish(Bytes sample, Deadline deadline) {
  return core_->publish(sample, deadline);
}
Result<Loan> Publisher::loan(const std::shared_ptr<const Schema>& schema) {
  return core_->loan(schema, {}, Deadline::now());
}
Result<Loan> Publisher::loan(const std::shared_ptr<const Schema>& schema,
                             const LoanOptions& options, Deadline deadline) {
  return core_->loan(schema, options, deadline);
}
Result<Published> Publisher::publish(Loan&& sample, const OnStream& on) {
  return core_->publish(std::move(sample), std::nullopt, on);
}
Result<Published> Publisher::publish(Loan&& sample, Deadline deadline, const OnStream& on) {
  return core_->publish(std::move(sample), deadline, on);
}
Result<void> Publisher::wait_for_subscribers(std::size_t count, Deadline deadline) {
  return core_->wait_for_subscribers(count, deadline);
}
const std::string& Publisher::key() const& noexcept { return core_->key().text(); }
PublisherStats Publisher::stats() const { return core_->stats(); }
Result<void> Publisher::close(Deadline deadline) { return core_->close(deadline); }

Result<Published> detail::SignalledPublish::publish(Publisher& publisher, const TensorDict& sample,
                                                    std::optional<Deadline> deadline,
                                                    const OnStream& on, const GoOn& go_on) {
  return publisher.core_->publish(sample, deadline, on, go_on);
}
Result<Published> detail::SignalledPublish::publish(Publisher& publisher, Bytes sample,
                                                    Deadline deadline, const GoOn& go_on) {
  return publisher.core_->publish(sample, deadline, go_on);
}
Result<Published> detail::SignalledPublish::publish(Publisher& publisher, Loan&& sample,
                                                    std::optional<Deadline> deadline,
                                                    const OnStream& on, const GoOn& go_on) {
  return publisher.core_->publish(std::move(sample), deadline, on, go_on);
}

// Responder

Result<Responder> Responder::declare(Node& node, std::string_view key, Handler handler,
                                     const ResponderOptions& options) {
  const auto& core = NodeCore::of(node);
  TENDON_CHECK(core->context()->usable("responder.declare"));
  TENDON_TRY(topic, parse_key(key, "responder.declare", "responder"));
  TENDON_TRY(responder, ResponderCore::create(core, std::move(topic), std::move(handler), options));
  return Responder(std::move(responder));
}

Responder::Responder(std::shared_ptr<ResponderCore> core) : core_(std::move(core)) {}
Responder::Responder(Responder&&) noexcept = default;
Responder& Responder::operator=(Responder&& other) noexcept {
  if (this != &other) {
    const Responder old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}
Responder::~Responder() {
  if (core_ == nullptr) return;
  if (core_->forked())
    detail::leave_to_parent(core_);
  else
    core_->end();
}

const std::string& Responder::key() const& noexcept { return core_->key().text(); }
ResponderStats Responder::stats() const { return core_->stats(); }
Result<void> Responder::close(Deadline deadline) { return core_->close(deadline); }

// Subscriber

Result<Subscriber> Subscriber::declare(Node& node, std::string_view keys,
                                       SubscriberOptions options) {
  options.hears_plain = options.plain.over(options.hears_plain);
  const auto& core = NodeCore::of(node);
  TENDON_CHECK(core->context()->usable("subscriber.declare"));
  TENDON_TRY(expression, KeyExpression::canonize(keys));
  if (options.window == 0 || options.window > kPipeWindowMessages) {
    return Error{ErrorCode::invalid_argument, "subscriber.declare",
                 "a window of " + std::to_string(options.window) + " samples; 1 to " +
                     std::to_string(kPipeWindowMessages) + " are legal"};
  }
  if (options.max_age && *options.max_age <= std::chrono::nanoseconds::zero()) {
    return Error{ErrorCode::invalid_argument, "subscriber.declare",
                 "a max_age of " + std::to_string(options.max_age->count()) +
                     " ns, which no sample is younger than; leave it out for samples of any age"};
  }
  if (options.max_hz && !(*options.max_hz >= kLeastMaxHz && *options.max_hz <= kMostMaxHz)) {
    return Error{ErrorCode::invalid_argument, "subscriber.declare",
                 "a max_hz of " + detail::number_text(*options.max_hz) + "; " +
                     detail::number_text(kLeastMaxHz) + " to " + detail::number_text(kMostMaxHz) +
                     " are legal; leave it out for all samples"};
  }
  if (options.hears_plain.value_or(false) && options.max_age) {
    return Error{
        ErrorCode::invalid_argument, "subscriber.declare",
        "`hears_plain` with a max_age: samples of plain Zenoh peers have no age; declare another "
        "subscriber for them"};
  }
  if (options.schema != nullptr && options.plain_content != PlainContent::tensors) {
    return Error{ErrorCode::invalid_argument, "subscriber.declare",
                 "a schema with `plain_content` bytes or both: a schema describes tensors; declare "
                 "another subscriber for the bytes of plain Zenoh peers"};
  }
  auto subscriber = SubscriberCore::create(core, std::move(expression), options);
  TENDON_CHECK(subscriber->prepare_for_plain_peers());
  std::unique_ptr<SampleThread> thread;
  if (options.on_sample != nullptr) {
    TENDON_TRY(started, SampleThread::start(subscriber));
    thread = std::move(started);
  }
  auto added = core->follow(subscriber, subscriber->announcement());
  if (added) added = subscriber->listen_to_plain_peers();
  if (!added) {
    subscriber->close();
    return std::move(added).error();
  }
  return Subscriber(std::move(subscriber), std::move(thread));
}

Subscriber::Subscriber(std::shared_ptr<SubscriberCore> core, std::unique_ptr<SampleThread> thread)
    : core_(std::move(core)), thread_(std::move(thread)) {}
Subscriber::Subscriber(Subscriber&&) noexcept = default;
Subscriber& Subscriber::operator=(Subscriber&& other) noexcept {
  if (this != &other) {
    const Subscriber old(std::move(*this));
    core_ = std::move(other.core_);
    thread_ = std::move(other.thread_);
  }
  return *this;
}
Subscriber::~Subscriber() {
  if (core_ == nullptr) return;
  if (core_->context()->forked())
    detail::leave_to_parent(core_);
  else
    close();
}

Result<Sample> Subscriber::recv(Deadline deadline) {
  return detail::receive_to(*core_, {}, deadline);
}
Result<Sample> Subscriber::recv(const DeviceTarget& target, Deadline deadline) {
  return detail::receive_to(*core_, target, deadline);
}
void Subscriber::give_back(Sample sample) { core_->put_back({.sample = std::move(sample)}); }
Completion<Sample> Subscriber::recv_async() { return core_->recv_async(); }
Result<void> Subscriber::wait_for_publishers(std::size_t count, Deadline deadline) {
  return core_->wait_for_publishers(count, deadline);
}
void Subscriber::on_event(std::function<void(const FabricEvent&)> callback) {
  core_->on_event(std::move(callback));
}
std::uint32_t Subscriber::entity() const noexcept { return core_->entity(); }
const std::string& Subscriber::keys() const& noexcept { return core_->keys().text(); }
SubscriberStats Subscriber::stats() const { return core_->stats(); }
void Subscriber::close() {
  core_->close();
  if (thread_ != nullptr) thread_->join();
}

}  // namespace tendon::v0
