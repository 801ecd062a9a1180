// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>

#include "channel/sending_life.hpp"
#include "channel/window.hpp"
#include "pipe/handle_state.hpp"
#include "runtime/context_core.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The windows of the two directions of a pipe.
struct PipeWindows {
  Window send;
  Window receive;
};

/// The common parts of the two halves of one end of a pipe.
struct PipeEnd {
  PipeEnd(std::shared_ptr<ContextCore> its_core, std::shared_ptr<Link> its_link,
          std::uint32_t its_id)
      : context(std::move(its_core)), link(std::move(its_link)), id(its_id) {}

  [[nodiscard]] Error by_peer(ErrorCode code, std::string_view what) const {
    return Error{code, "pipe", "peer " + link->peer_name() + " " + std::string(what)};
  }
  [[nodiscard]] Error busy(std::string_view what) const {
    // In a forked child the other call is the parent's.
    if (auto here = context->usable("pipe"); !here) return std::move(here).error();
    return Error{ErrorCode::busy, "pipe",
                 "another thread is in " + std::string(what) + " on this pipe to " +
                     link->peer_name() + "; one sender and one receiver at a time are legal"};
  }

  /// For the device thread, which calls it when a GPU has answered: progress() then looks at it.
  [[nodiscard]] std::function<void()> teller(std::shared_ptr<std::atomic<bool>> flag) const {
    return [flag = std::move(flag), weak = std::weak_ptr(context)] {
      flag->store(true);
      if (const auto core = weak.lock()) core->wake_for_work();
    };
  }

  const std::shared_ptr<ContextCore> context;
  const std::shared_ptr<Link> link;
  const std::uint32_t id;
  SendingLife sending;
  HandleState handle;
  std::atomic<std::uint64_t> waits{0};  // of both halves, for its stats
  // Set by the device thread when a GPU has answered to a queued send, or a posted receive.
  const std::shared_ptr<std::atomic<bool>> filled = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<std::atomic<bool>> delivered = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace tendon::v0::detail
