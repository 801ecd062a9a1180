// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/link.hpp"

namespace tendon::test {

/// A link without a peer: it takes messages or not, as the test says.
class PeerlessLink : public detail::Link {
 public:
  explicit PeerlessLink(std::uint64_t peer_cap_bytes = 1 << 20)
      : Link({}, {PathKind::shm, "a test asked for it"}, {}, 1 << 20, peer_cap_bytes) {}

  Result<std::shared_ptr<detail::LoanedSlot>> acquire(std::uint64_t) override { return no(); }
  bool owns(const detail::LoanedSlot&) const override { return false; }
  Result<detail::Sent> send(detail::SendOp& op, Deadline) override {
    if (failure) return *failure;
    if (full) return detail::Sent::later;
    sent.push_back(op.descriptor.sequence);
    return detail::Sent::done;
  }
  bool withdraw(detail::SendOp&) override { return !too_late; }
  void post(const detail::Descriptor&) override {}
  void post(const detail::Descriptor&, Bytes) override {}
  bool drained() override { return true; }
  bool has_input() const noexcept override { return false; }
  bool poll() override { return false; }
  bool lend(const detail::IncomingBody&) noexcept override { return false; }
  Result<void> start(detail::Reactor&, detail::LinkObserver&) override { return {}; }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void tick(std::chrono::steady_clock::time_point) override {}
  void shut_down() override {}
  void on_ready(int, std::uint32_t) override {}
  detail::LinkStats stats() const override { return {}; }

  bool full = false;
  bool too_late = false;  // to withdraw anything
  std::optional<Error> failure;
  std::vector<std::uint64_t> sent;  // sequences of messages

 protected:
  void on_failed(detail::Death) override {}

 private:
  static Error no() { return {ErrorCode::not_supported, "test", "not in this test"}; }
};

}  // namespace tendon::test
