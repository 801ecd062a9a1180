// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/link.hpp"

namespace tendon::test {

/// A pipe that carries no messages.
class IdlePipe final : public detail::MessageSink {
 public:
  void on_message(detail::Incoming&&) override {}
  bool claim_destination(const detail::Descriptor&, std::vector<MutableBytes>&) override {
    return false;
  }
  bool admits(const detail::Descriptor&) override { return true; }
  void on_transfer_ended(const detail::Transfer&) override {}
  void on_link_failed(const Error&) override {}
};

/// The first of the numbers that neither side of a link uses.
inline constexpr std::uint32_t kFirstIdlePipe = 1u << 30;

/// Attaches idle pipes to the link, until there is room for `left` more. Only this side has them:
/// the peer knows nothing of them.
inline void fill_with_idle_pipes(detail::Link& link, std::uint32_t left) {
  const detail::Lock receiving(link.receive_mutex());
  for (std::uint32_t pipe = kFirstIdlePipe; link.pipe_count() + left < link.most_pipes(); ++pipe)
    link.attach(pipe, std::make_shared<IdlePipe>());
}

}  // namespace tendon::test
