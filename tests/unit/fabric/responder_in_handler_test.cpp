// SPDX-License-Identifier: Apache-2.0
// A responder that one of its own handlers closes or drops.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <tendon/fabric/node.hpp>
#include <utility>

#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

class ResponderInHandler : public NodesTest {
 protected:
  [[nodiscard]] static Result<Reply> call(Program& program, std::int64_t n) {
    return program.node.call("plan", numbered(n), kPatience);
  }
  std::optional<Responder> responder_;
};
TENDON_ON_BOTH_PATHS(ResponderInHandler);

TEST_P(ResponderInHandler, CloseReturnsAtOnceAndTheCallerIsAnswered) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  std::promise<Result<void>> closed;
  responder_ = Responder::declare(arm.node, "plan", [&](const Request&) -> Result<TensorDict> {
                 closed.set_value(responder_->close(Deadline::never()));
                 return numbered(7);
               }).value();
  EXPECT_EQ(number_of(call(brain, 1).value().tensors), 7);
  EXPECT_TRUE(succeeds(closed.get_future().get()));
  EXPECT_TRUE(fails_with(call(brain, 2), ErrorCode::unreachable, "was closed"));
  EXPECT_TRUE(succeeds(responder_->close(kPatience)));
  EXPECT_EQ(responder_->stats().answered, 1U);
}

// Waiting calls are still answered: only the end of close() does not wait for them.
TEST_P(ResponderInHandler, CloseLeavesWhatWaitsToTheHandlers) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  std::promise<void> both;
  responder_ = Responder::declare(arm.node, "plan",
                                  [&](const Request& request) -> Result<TensorDict> {
                                    if (number_of(request.tensors()) == 1) {
                                      both.get_future().wait();
                                      EXPECT_TRUE(succeeds(responder_->close(Deadline::never())));
                                    }
                                    return request.tensors();
                                  },
                                  {.handlers = 1, .waiting = 4})
                   .value();
  auto first = std::async(std::launch::async, [&] { return call(brain, 1); });
  EXPECT_TRUE(eventually([&] { return responder_->stats().running == 1; }));
  auto second = std::async(std::launch::async, [&] { return call(brain, 2); });
  EXPECT_TRUE(eventually([&] { return responder_->stats().waiting == 1; }));
  both.set_value();
  EXPECT_EQ(number_of(first.get().value().tensors), 1);
  EXPECT_EQ(number_of(second.get().value().tensors), 2);
}

TEST_P(ResponderInHandler, TheLastHandlerFreesADroppedResponder) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const auto witness = std::make_shared<int>(0);
  std::atomic<bool> stopped{false};
  std::promise<void> dropped;
  std::shared_future<void> is_dropped(dropped.get_future());
  responder_ =
      Responder::declare(arm.node, "plan",
                         [&, kept = witness](const Request& request) -> Result<TensorDict> {
                           if (number_of(request.tensors()) == 1) {
                             responder_.reset();
                             dropped.set_value();
                           } else {
                             is_dropped.wait();
                             stopped = request.cancelled();
                           }
                           return request.tensors();
                         })
          .value();
  auto other = std::async(std::launch::async, [&] { return call(brain, 2); });
  EXPECT_TRUE(eventually([&] { return responder_->stats().running == 1; }));
  EXPECT_EQ(number_of(call(brain, 1).value().tensors), 1) << "its own request is answered";
  EXPECT_FALSE(other.get()) << "another one is asked to stop, as by a destructor outside";
  EXPECT_TRUE(eventually([&] { return witness.use_count() == 1; })) << "the responder is gone";
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace tendon::test
