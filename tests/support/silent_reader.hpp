// SPDX-License-Identifier: Apache-2.0
// A peer that subscribes and reads nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tendon/runtime/context.hpp>
#include <utility>
#include <vector>

#include "fabric/ports/subscription_request.hpp"
#include "runtime/reach.hpp"
#include "support/expect.hpp"

namespace tendon::test {

/// A subscriber that makes no progress unless a test calls it. Samples for it stay with the kernel
/// and with their sender.
class SilentReader {
 public:
  /// Connects to the Context that listens at `address`.
  SilentReader(const ContextId& publisher, const std::string& address)
      : link_(detail::reach_once(core(), publisher, std::span(&address, 1), {Profile::local},
                                 kPatience)
                  .value()) {}

  /// Opens another channel at this publisher, as a subscriber does.
  void subscribe(std::uint32_t entity) {
    const detail::SubscriptionRequest request{.entity = entity};
    const detail::Opening opening{.purpose = detail::Purpose::fabric,
                                  .header = std::as_bytes(std::span(&request, 1)),
                                  .window_messages = 16,
                                  .window_bytes = std::uint64_t{64} << 20};
    EXPECT_TRUE(succeeds(core().open_pipe(*link_, opening, [&](std::uint32_t) { return deaf_; })));
  }
  /// Reads until the first sample arrives: all connections of its link exist then.
  void read_one() {
    EXPECT_TRUE(eventually([&] { return deaf_->came; }, [&] { context_.progress(); }));
  }

 private:
  class Deaf final : public detail::MessageSink {
   public:
    void on_message(detail::Incoming&& incoming) override {
      came = came || incoming.descriptor.kind == detail::MessageKind::data;
    }
    bool claim_destination(const detail::Descriptor&, std::vector<MutableBytes>&) override {
      return false;
    }
    bool admits(const detail::Descriptor&) override { return true; }
    void on_transfer_ended(const detail::Transfer&) override {}
    void on_link_failed(const Error&) override {}
    bool came = false;
  };
  [[nodiscard]] detail::ContextCore& core() const { return *detail::ContextCore::of(context_); }

  Context context_ = Context::create({.name = "silent",
                                      .progress = Progress::manual,
                                      .transport = Transport::tcp,
                                      .lease = kLongLease})
                         .value();
  const std::shared_ptr<Deaf> deaf_ = std::make_shared<Deaf>();
  std::shared_ptr<detail::Link> link_;
};

}  // namespace tendon::test
