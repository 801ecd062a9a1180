// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "fabric/zenoh/zenoh_port.hpp"
#include "support/node_crowd.hpp"

namespace tendon::test {

using namespace tendon::detail;  // as in the other doubles of Zenoh

/// A session that counts the calls of its callbacks. The stopwatch counts the time of callbacks for
/// the node, and leaves out the time of calls.
class CountingPort : public ZenohPort {
  using Counts = Stopwatch::Counts;
  using Turn = Stopwatch::Turn;

 public:
  CountingPort(std::unique_ptr<ZenohPort> port, std::size_t& count, Stopwatch& watch)
      : port_(std::move(port)), count_(count), watch_(watch) {}
  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override {
    const Turn own(watch_, Counts::no);
    return port_->token(key);
  }
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    const Turn own(watch_, Counts::no);
    return port_->watch(
        pattern, [this, on_token = std::move(on_token)](TokenChange change, std::string_view key) {
          const Turn node(watch_, Counts::yes);
          ++count_;
          on_token(change, key);
        });
  }
  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, std::chrono::milliseconds timeout,
                                   OnKey on_key, OnEnd on_end) override {
    const Turn own(watch_, Counts::no);
    return port_->get(
        pattern, timeout,
        [this, on_key = std::move(on_key)](std::string_view key) {
          const Turn node(watch_, Counts::yes);
          ++count_;
          on_key(key);
        },
        [this, on_end = std::move(on_end)](Ending ending) {
          const Turn node(watch_, Counts::yes);
          on_end(ending);
        });
  }
  [[nodiscard]] Result<void> put(ZenohMessage message) override {
    return port_->put(std::move(message));
  }
  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override {
    return port_->put_patiently(key, std::move(payload));
  }
  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  Audience audience,
                                                                  OnMatching call) override {
    return port_->publisher(key, audience, std::move(call));
  }
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage call,
                                         OnDropped dropped) override {
    return port_->subscribe(pattern, std::move(call), std::move(dropped));
  }
  [[nodiscard]] Result<Handle> query(ZenohMessage question, std::chrono::milliseconds timeout,
                                     OnMessage call, OnEnd end) override {
    return port_->query(std::move(question), timeout, std::move(call), std::move(end));
  }
  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion call) override {
    return port_->answer(key, std::move(call));
  }
  [[nodiscard]] Result<Handle> on_state(OnState call) override {
    return port_->on_state(std::move(call));
  }
  [[nodiscard]] SessionState state() const override { return port_->state(); }

 private:
  const std::unique_ptr<ZenohPort> port_;
  std::size_t& count_;
  Stopwatch& watch_;
};

}  // namespace tendon::test
