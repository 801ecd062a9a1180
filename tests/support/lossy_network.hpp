// SPDX-License-Identifier: Apache-2.0
// The step flows of a controller and its workers within one process, over a network that loses
// messages.
#pragma once

#include <poll.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tendon/core/deadline.hpp>
#include <utility>
#include <vector>

#include "control/flows/step_sockets.hpp"
#include "control/flows/wake.hpp"

namespace tendon::test {

/// One end that receives messages.
struct LossyInbox {
  std::mutex mutex;
  std::deque<std::string> messages;
  std::unique_ptr<detail::UserEvent> wake = detail::open_wake().value();
};

struct LossyOptions {
  std::uint32_t seed = 1;
  int lost_percent = 0;
  int doubled_percent = 0;
  int reordered_percent = 0;
};

/// A network of endpoints that loses, doubles and reorders messages.
///
/// Owns:    the inboxes, by endpoint.
/// Threads: thread-safe.
class LossyNetwork final : public detail::StepNetwork,
                           public std::enable_shared_from_this<LossyNetwork> {
 public:
  explicit LossyNetwork(LossyOptions options) : options_(options), random_(options.seed) {}

  Result<std::shared_ptr<detail::ControllerSockets>> bind(const detail::StepPlace& place) override;
  Result<std::shared_ptr<detail::WorkerSockets>> connect(const detail::StepEndpoints& endpoints,
                                                         const std::string& host,
                                                         const detail::CurveKeys& keys) override;
  Result<detail::CurveKeys> make_keys() override { return detail::CurveKeys{}; }

  /// Stops losing, doubling and reordering messages.
  void heal() {
    const std::lock_guard lock(mutex_);
    options_ = {};
  }
  [[nodiscard]] std::uint64_t lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  /// Sends a message to all inboxes of an endpoint.
  void put(const std::string& endpoint, Bytes message) {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : inboxes_[endpoint]) {
      const auto inbox = weak.lock();
      if (inbox == nullptr) continue;
      if (chance(options_.lost_percent)) {
        ++lost_;
        continue;
      }
      const std::lock_guard inbox_lock(inbox->mutex);
      inbox->messages.emplace_back(as_text(message));
      if (chance(options_.doubled_percent)) inbox->messages.emplace_back(as_text(message));
      if (inbox->messages.size() > 1 && chance(options_.reordered_percent)) {
        std::swap(inbox->messages.front(), inbox->messages.back());
      }
      inbox->wake->signal();
    }
  }
  std::shared_ptr<LossyInbox> open(const std::string& endpoint) {
    const std::lock_guard lock(mutex_);
    auto inbox = std::make_shared<LossyInbox>();
    inboxes_[endpoint].push_back(inbox);
    return inbox;
  }
  static std::optional<Storage> take(LossyInbox& inbox) {
    const std::lock_guard lock(inbox.mutex);
    inbox.wake->take();
    if (inbox.messages.empty()) return std::nullopt;
    const auto message = std::make_shared<std::string>(std::move(inbox.messages.front()));
    inbox.messages.pop_front();
    if (!inbox.messages.empty()) inbox.wake->signal();
    return Storage(message, reinterpret_cast<std::byte*>(message->data()), message->size(),
                   Access::read_only);
  }
  static void wait(const LossyInbox& inbox, int wake_fd, Deadline deadline) {
    pollfd fds[2] = {{.fd = inbox.wake->fd(), .events = POLLIN, .revents = 0},
                     {.fd = wake_fd, .events = POLLIN, .revents = 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::min(deadline.remaining(), std::chrono::nanoseconds(std::chrono::seconds(1))));
    (void)poll(fds, 2, static_cast<int>(left.count()));
  }

 private:
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  mutable std::mutex mutex_;
  LossyOptions options_;
  std::mt19937 random_;
  std::uint64_t lost_ = 0;
  std::uint64_t bound_ = 0;
  std::map<std::string, std::vector<std::weak_ptr<LossyInbox>>> inboxes_;

  friend class LossyControllerSockets;
};

class LossyControllerSockets final : public detail::ControllerSockets {
 public:
  LossyControllerSockets(std::shared_ptr<LossyNetwork> network, const std::string& name)
      : network_(std::move(network)),
        endpoints_{.inputs = name + "/inputs",
                   .outputs = name + "/outputs",
                   .microbatches = name + "/outputs",
                   .server_key = {}},
        inbox_(network_->open(endpoints_.outputs)) {}
  [[nodiscard]] detail::StepEndpoints endpoints() const override { return endpoints_; }
  Result<void> publish(Bytes message) override {
    network_->put(endpoints_.inputs, message);
    return {};
  }
  std::optional<Storage> take() override { return LossyNetwork::take(*inbox_); }
  void wait(int wake_fd, Deadline deadline) override {
    LossyNetwork::wait(*inbox_, wake_fd, deadline);
  }

 private:
  std::shared_ptr<LossyNetwork> network_;
  detail::StepEndpoints endpoints_;
  std::shared_ptr<LossyInbox> inbox_;
};

class LossyWorkerSockets final : public detail::WorkerSockets {
 public:
  LossyWorkerSockets(std::shared_ptr<LossyNetwork> network, detail::StepEndpoints endpoints)
      : network_(std::move(network)),
        endpoints_(std::move(endpoints)),
        inbox_(network_->open(endpoints_.inputs)) {}
  Result<void> send(v1::Flow flow, Bytes message, Deadline deadline) override {
    (void)flow;
    (void)deadline;
    network_->put(endpoints_.outputs, message);
    return {};
  }
  std::optional<Storage> take() override { return LossyNetwork::take(*inbox_); }
  void wait(int wake_fd, Deadline deadline) override {
    LossyNetwork::wait(*inbox_, wake_fd, deadline);
  }
  Result<void> reconnect(v1::Flow flow) override {
    if (flow == v1::FLOW_STEP_INPUTS) inbox_ = network_->open(endpoints_.inputs);
    return {};
  }

 private:
  std::shared_ptr<LossyNetwork> network_;
  detail::StepEndpoints endpoints_;
  std::shared_ptr<LossyInbox> inbox_;
};

inline Result<std::shared_ptr<detail::ControllerSockets>> LossyNetwork::bind(
    const detail::StepPlace& place) {
  (void)place;
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    name = std::to_string(++bound_);
  }
  return std::shared_ptr<detail::ControllerSockets>(
      std::make_shared<LossyControllerSockets>(shared_from_this(), name));
}
inline Result<std::shared_ptr<detail::WorkerSockets>> LossyNetwork::connect(
    const detail::StepEndpoints& endpoints, const std::string& host,
    const detail::CurveKeys& keys) {
  (void)host;
  (void)keys;
  return std::shared_ptr<detail::WorkerSockets>(
      std::make_shared<LossyWorkerSockets>(shared_from_this(), endpoints));
}

}  // namespace tendon::test
