// SPDX-License-Identifier: Apache-2.0
// The handles of nodes, publishers and subscribers.
#include <tendon/fabric/node.hpp>
#include <utility>

#include "fabric/node_core.hpp"
#include "fabric/publisher_core.hpp"
#include "fabric/subscriber_core.hpp"

namespace tendon::v0 {

using detail::ContextCore;
using detail::NodeCore;
using detail::PublisherCore;
using detail::SubscriberCore;

// Node

Result<Node> Node::join(Context& context, NodeOptions options, Deadline deadline) {
  return NodeCore::join(ContextCore::of(context), std::move(options), deadline);
}

Node::Node(std::shared_ptr<NodeCore> core) : core_(std::move(core)) {}
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->close();
  core_ = std::move(other.core_);
  return *this;
}
Node::~Node() {
  if (core_ != nullptr) core_->close();
}

const std::string& Node::domain() const& noexcept { return core_->options().domain; }
const std::string& Node::name() const& noexcept { return core_->options().name; }
const std::string& Node::address() const& noexcept { return core_->address(); }
std::vector<EntityInfo> Node::publishers() const { return core_->publishers(); }
std::vector<EntityInfo> Node::subscribers() const { return core_->subscribers(); }
Result<void> Node::survey(Deadline deadline) { return core_->survey(deadline); }
std::vector<std::string> Node::nodes() const { return core_->nodes(); }
void Node::on_event(std::function<void(const FabricEvent&)> callback) {
  core_->on_event(std::move(callback));
}
void Node::close() { core_->close(); }

// Publisher

Result<Publisher> Publisher::declare(Node& node, std::string_view key,
                                     const PublisherOptions& options) {
  const auto& core = NodeCore::of(node);
  TENDON_CHECK(core->context()->usable("publisher.declare"));
  TENDON_TRY(topic, KeyExpression::parse(key));
  if (!topic.is_key()) {
    return Error{ErrorCode::invalid_argument, "publisher.declare",
                 "'" + topic.text() + "' is a set of keys: a publisher has one, without wildcards"};
  }
  TENDON_TRY(publisher, PublisherCore::create(core, std::move(topic), options));
  return Publisher(std::move(publisher));
}

Publisher::Publisher(std::shared_ptr<PublisherCore> core) : core_(std::move(core)) {}
Publisher::Publisher(Publisher&&) noexcept = default;
Publisher& Publisher::operator=(Publisher&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->end();
  core_ = std::move(other.core_);
  return *this;
}
Publisher::~Publisher() {
  if (core_ != nullptr) core_->end();
}

Result<Published> Publisher::publish(const TensorDict& sample, Deadline deadline) {
  return core_->publish(sample, deadline);
}
Result<Published> Publisher::publish(Bytes sample, Deadline deadline) {
  return core_->publish(sample, deadline);
}
Result<Loan> Publisher::loan(const std::shared_ptr<const Schema>& schema) {
  return core_->loan(schema);
}
Result<Published> Publisher::publish(Loan&& sample, Deadline deadline) {
  return core_->publish(std::move(sample), deadline);
}
Result<void> Publisher::wait_for_subscribers(std::size_t count, Deadline deadline) {
  return core_->wait_for_subscribers(count, deadline);
}
const std::string& Publisher::key() const& noexcept { return core_->key().text(); }
PublisherStats Publisher::stats() const { return core_->stats(); }
Result<void> Publisher::close(Deadline deadline) { return core_->close(deadline); }

// Subscriber

Result<Subscriber> Subscriber::declare(Node& node, std::string_view keys,
                                       const SubscriberOptions& options) {
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
                 "a max_hz of " + std::to_string(*options.max_hz) + "; " +
                     std::to_string(kLeastMaxHz) + " to " + std::to_string(kMostMaxHz) +
                     " are legal; leave it out for all samples"};
  }
  auto subscriber = std::make_shared<SubscriberCore>(core, std::move(expression), options);
  if (auto added = core->add(subscriber); !added) {
    subscriber->close();
    return std::move(added).error();
  }
  return Subscriber(std::move(subscriber));
}

Subscriber::Subscriber(std::shared_ptr<SubscriberCore> core) : core_(std::move(core)) {}
Subscriber::Subscriber(Subscriber&&) noexcept = default;
Subscriber& Subscriber::operator=(Subscriber&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->close();
  core_ = std::move(other.core_);
  return *this;
}
Subscriber::~Subscriber() {
  if (core_ != nullptr) core_->close();
}

Result<Sample> Subscriber::recv(Deadline deadline) { return core_->recv(deadline); }
Result<void> Subscriber::wait_for_publishers(std::size_t count, Deadline deadline) {
  return core_->wait_for_publishers(count, deadline);
}
const std::string& Subscriber::keys() const& noexcept { return core_->keys().text(); }
SubscriberStats Subscriber::stats() const { return core_->stats(); }
void Subscriber::close() { core_->close(); }

}  // namespace tendon::v0
