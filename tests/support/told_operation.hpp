// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "group/epochs/operation.hpp"

namespace tendon::test {

/// An operation whose behaviour the test sets.
class Told final : public detail::Operation {
 public:
  explicit Told(std::uint64_t sequence)
      : Operation({.op = detail::CollectiveOp::barrier}, sequence) {}
  std::function<Result<bool>()> on_advance = [] { return false; };
  std::function<void()> on_waits_for = [] {};
  std::vector<GroupRank> awaited = {GroupRank{1}};
  std::uint64_t steps = 0;
  bool input = false;

  Result<bool> advance(detail::Epoch&) override { return on_advance(); }
  bool has_input(detail::Epoch&) override { return input; }
  std::vector<GroupRank> waits_for(detail::Epoch&) override {
    on_waits_for();
    return awaited;
  }
  std::uint64_t steps_done() const noexcept override { return steps; }
};

}  // namespace tendon::test
