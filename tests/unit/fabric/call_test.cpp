// SPDX-License-Identifier: Apache-2.0
// Calls between nodes: who answers, what a caller hears if nobody does, and what handlers see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <vector>

#include "fabric/ports/call_words.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/storage_on_gpu.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A handler that runs until it may return, or its caller cancels.
class Gate {
 public:
  [[nodiscard]] Responder::Handler handler() const {
    return [state = state_](const Request& request) -> Result<TensorDict> {
      ++state->running;
      std::unique_lock lock(state->mutex);
      if (!state->opened.wait(lock, request.stop_token(), [&] { return state->open; }))
        ++state->cancelled;
      return request.tensors();
    };
  }
  void open() const {
    {
      const std::lock_guard lock(state_->mutex);
      state_->open = true;
    }
    state_->opened.notify_all();
  }
  [[nodiscard]] bool holds(int count) const {
    return eventually([&] { return state_->running == count; });
  }
  [[nodiscard]] int running() const { return state_->running; }  ///< ever begun
  [[nodiscard]] int cancelled() const { return state_->cancelled; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable_any opened;
    bool open = false;
    std::atomic<int> running{0};
    std::atomic<int> cancelled{0};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

Result<TensorDict> echo(const Request& request) { return request.tensors(); }

class Calls : public NodesTest {
 protected:
  [[nodiscard]] static Responder respond(Program& program, Responder::Handler handler,
                                         const ResponderOptions& options = {}) {
    return Responder::declare(program.node, "plan", std::move(handler), options).value();
  }
  [[nodiscard]] static Result<Reply> call(Program& program, Deadline deadline = kPatience) {
    return program.node.call("plan", numbered(7), deadline);
  }
  [[nodiscard]] static bool knows(const Program& program, std::size_t count) {
    return eventually([&] { return program.node.responders().size() == count; });
  }
};
TENDON_ON_BOTH_PATHS(Calls);

// Answers

TEST_P(Calls, AreAnsweredWithWhatTheHandlerReturns) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  std::string caller;
  Responder responder = respond(arm, [&](const Request& request) -> Result<TensorDict> {
    caller = request.caller();
    EXPECT_FALSE(request.cancelled());
    EXPECT_FALSE(request.deadline().is_never());
    TensorDict answer = numbered(number_of(request.tensors()) + 1);
    answer.set("label", Value("reached"));
    return answer;
  });
  for (int n = 0; n < 3; ++n) {
    const Reply reply = brain.node.call("plan", numbered(n), kPatience).value();
    EXPECT_EQ(reply.node, "arm");
    EXPECT_EQ(number_of(reply.tensors), n + 1);
    EXPECT_EQ(reply.tensors.value("label"), Value("reached"));
  }
  EXPECT_THAT(caller, HasSubstr("brain"));
  EXPECT_EQ(responder.stats().answered, 3u);
  EXPECT_EQ(brain.node.call_stats().calls, 3u);
  EXPECT_EQ(brain.node.call_stats().answers, 3u);
  EXPECT_EQ(brain.node.call_stats().late_answers, 0u);
}

TEST_P(Calls, TensorsOfAnySizeGoBothWays) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  Responder responder = respond(arm, echo);
  std::vector<TensorDict> kept;
  for (const std::uint64_t size : {0u, 1u, 8168u, 8169u, 100'000u, 3'000'000u}) {
    const Reply reply = brain.node.call("plan", patterned(size, size), kPatience).value();
    EXPECT_TRUE(is_patterned(reply.tensors, size, size));
    kept.push_back(reply.tensors);
  }
  for (int n = 0; n < 40; ++n)  // more than may be kept without a copy
    kept.push_back(brain.node.call("plan", patterned(1, 20'000), kPatience).value().tensors);
  EXPECT_TRUE(is_patterned(kept[5], 3'000'000, 3'000'000));
  EXPECT_TRUE(is_patterned(kept.back(), 1, 20'000));
}

TEST_P(Calls, MemoryOfAGpuIsRefusedOnBothWays) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  TensorDict tree;
  tree.set("x", Tensor::view(storage_on_gpu(64), 0, DType::u8, {64}).value());
  const TensorDict packed = make_packed(tree.schema(), Layout::aligned, storage_on_gpu(64)).value();
  std::atomic<bool> answers_packed{false};
  Responder responder = respond(
      arm, [&](const Request&) -> Result<TensorDict> { return answers_packed ? packed : tree; });
  for (const bool is_packed : {false, true}) {
    const TensorDict& on_gpu = is_packed ? packed : tree;
    EXPECT_TRUE(fails_with(brain.node.call("plan", on_gpu, kPatience),
                           ErrorCode::unsupported_device, "'x'"));
    answers_packed = is_packed;
    const auto refused = call(brain);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().detail, HasSubstr("cuda:0"));
  }
}

TEST_P(Calls, ANodeAnswersItself) {
  Program& arm = start("arm");
  Responder responder = respond(arm, echo);
  EXPECT_EQ(number_of(call(arm).value().tensors), 7);
}

TEST_P(Calls, WaitForTheFirstResponder) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  std::thread caller([&] { EXPECT_TRUE(succeeds(call(brain))); });
  EXPECT_TRUE(eventually([&] { return brain.node.nodes().size() == 2; }));
  Responder responder = respond(arm, echo);
  caller.join();
}

TEST_P(Calls, WithoutAResponderSayWhatIsMissing) {
  Program& brain = start("brain");
  EXPECT_TRUE(fails_with(call(brain, kBriefly), ErrorCode::unreachable, "plan"));
  EXPECT_TRUE(fails_with(call(brain, 0s), ErrorCode::unreachable, "start its node"));
  EXPECT_TRUE(fails_with(brain.node.call_all("plan", numbered(1), kBriefly), ErrorCode::unreachable,
                         "plan"));
}

TEST_P(Calls, TheFirstAnswerWinsAndTheOtherRequestIsCancelled) {
  Program& slow = start("slow");
  Program& fast = start("fast");
  Program& brain = start("brain");
  const Gate gate;
  Responder waits = respond(slow, gate.handler());
  Responder answers = respond(fast, [&](const Request& request) -> Result<TensorDict> {
    EXPECT_TRUE(gate.holds(1));
    return request.tensors();
  });
  ASSERT_TRUE(knows(brain, 2));
  EXPECT_EQ(call(brain, kPatience).value().node, "fast");
  EXPECT_TRUE(eventually([&] { return waits.stats().cancelled == 1; }));
  EXPECT_EQ(gate.cancelled(), 1);
  EXPECT_EQ(waits.stats().answered, 0u);
}

// Errors

TEST_P(Calls, AnErrorOfAHandlerNamesItsNode) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  detail::Mutex mutex;  // the sanitizer does not see the order that shared memory provides
  std::optional<Error> error;
  Responder responder = respond(arm, [&](const Request&) -> Result<TensorDict> {
    const detail::Lock lock(mutex);
    if (!error) throw std::runtime_error("a motor is hot");
    return *error;
  });
  const auto call_that_fails = [&](ErrorCode code, std::string text) {
    {
      const detail::Lock lock(mutex);
      error = Error{code, "test", std::move(text)};
    }
    return call(brain);
  };
  auto failed = call(brain);
  EXPECT_TRUE(fails_with(failed, ErrorCode::handler_failed, "arm"));
  EXPECT_TRUE(fails_with(failed, ErrorCode::handler_failed, "a motor is hot"));
  EXPECT_TRUE(fails_with(call_that_fails(ErrorCode::not_found, "no such plan"),
                         ErrorCode::not_found, "no such plan"));
  // These codes would tell this caller to do something else.
  EXPECT_TRUE(fails_with(call_that_fails(ErrorCode::timeout, "its own deadline"),
                         ErrorCode::handler_failed, "timeout: its own deadline"));
  EXPECT_TRUE(fails_with(call_that_fails(ErrorCode::not_found, std::string(10'000, 'x')),
                         ErrorCode::not_found, std::string(512, 'x')));
  std::string letters = "x";
  for (int i = 0; i < 1'000; ++i) letters += "\xC3\xA9";
  const auto cut = call_that_fails(ErrorCode::not_found, letters);
  ASSERT_TRUE(fails_with(cut, ErrorCode::not_found, letters.substr(0, 511)));
  EXPECT_TRUE(cut.error().detail.ends_with("\xC3\xA9")) << "half a character became a space";
  EXPECT_TRUE(fails_with(call_that_fails(ErrorCode::not_found, "no caf\xE9"), ErrorCode::not_found,
                         "no caf\\xe9"));
  EXPECT_EQ(responder.stats().failed, 6u);
}

TEST_P(Calls, OneResponderThatFailsLeavesTheOthers) {
  Program& broken = start("broken");
  Program& arm = start("arm");
  Program& brain = start("brain");
  Responder fails = respond(broken, [](const Request&) -> Result<TensorDict> {
    return Error{ErrorCode::not_found, "test", "no"};
  });
  Responder answers = respond(arm, [&](const Request& request) -> Result<TensorDict> {
    EXPECT_TRUE(eventually([&] { return fails.stats().failed == 1; }));
    return request.tensors();
  });
  ASSERT_TRUE(knows(brain, 2));
  EXPECT_EQ(call(brain).value().node, "arm");
}

TEST_P(Calls, BeyondItsPlacesAResponderIsBusy) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  Program& eye = start("eye");
  Program& ear = start("ear");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 2, .waiting = 2});
  std::vector<std::thread> callers;
  for (Program* program : {&brain, &eye, &brain, &eye})
    callers.emplace_back([&, program] { EXPECT_TRUE(succeeds(call(*program))); });
  ASSERT_TRUE(gate.holds(2));
  ASSERT_TRUE(eventually([&] { return responder.stats().waiting == 2; }));
  EXPECT_TRUE(fails_with(call(ear), ErrorCode::server_busy, "2 handlers"));
  EXPECT_EQ(responder.stats().refused, 1u);
  gate.open();
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(succeeds(call(brain)));
}

TEST_P(Calls, OneCallerHasHalfOfThePlaces) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  Program& eye = start("eye");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 2, .waiting = 4});
  std::vector<std::thread> callers;
  for (int n = 0; n < 3; ++n) callers.emplace_back([&] { EXPECT_TRUE(succeeds(call(brain))); });
  ASSERT_TRUE(gate.holds(2));
  ASSERT_TRUE(eventually([&] { return responder.stats().waiting == 1; }));
  EXPECT_TRUE(fails_with(call(brain), ErrorCode::server_busy, "one caller has at most 3"));
  EXPECT_EQ(responder.stats().refused, 1u);
  callers.emplace_back([&] { EXPECT_TRUE(succeeds(call(eye))); });
  EXPECT_TRUE(eventually([&] { return responder.stats().waiting == 2; })) << "another has a place";
  gate.open();
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(succeeds(call(brain)));
}

TEST_P(Calls, EndAtTheirDeadlineAndTheHandlerHearsOfIt) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler());
  // A busy machine may take long until the handler runs.
  for (auto patience = 30ms; gate.running() == 0 && patience < kPatience; patience *= 2)
    EXPECT_TRUE(fails_with(call(brain, patience), ErrorCode::timeout, "arm"));
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 1; }));
  EXPECT_TRUE(eventually([&] { return responder.stats().running == 0; }));
  EXPECT_EQ(responder.stats().answered, 0u);
}

TEST_P(Calls, ARequestThatIsGivenUpWhileItWaitsNeverRuns) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 1});
  std::thread caller([&] { EXPECT_TRUE(succeeds(call(brain, kPatience))); });
  EXPECT_TRUE(gate.holds(1));
  EXPECT_TRUE(fails_with(call(brain, kBriefly), ErrorCode::timeout, "arm: it had not answered"));
  EXPECT_TRUE(eventually([&] { return responder.stats().cancelled == 1; }));
  EXPECT_EQ(responder.stats().waiting, 0u);
  gate.open();
  caller.join();
  EXPECT_EQ(gate.running(), 1);
  EXPECT_EQ(brain.node.call_stats().late_answers, 0u);
}

TEST_P(Calls, OneThatIsStoppedIsGivenUp) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  std::stop_source stop;
  std::thread caller([&] {
    EXPECT_TRUE(
        fails_with(brain.node.call("plan", numbered(1), stop.get_token(), Deadline(kPatience)),
                   ErrorCode::cancelled));
    EXPECT_TRUE(
        fails_with(brain.node.call_all("plan", numbered(1), stop.get_token(), Deadline(kPatience)),
                   ErrorCode::cancelled))
        << "at once";
  });
  Responder responder = respond(arm, gate.handler());
  EXPECT_TRUE(gate.holds(1));
  stop.request_stop();
  caller.join();
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 1; }));
}

TEST_P(Calls, OfALostResponderFailAtOnce) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler());
  std::thread caller(
      [&] { EXPECT_TRUE(fails_with(call(brain, kPatience), ErrorCode::peer_lost, "arm")); });
  EXPECT_TRUE(gate.holds(1));
  cut_links(brain);
  caller.join();
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 1; })) << "nobody waits for the answer";
  gate.open();
  EXPECT_TRUE(succeeds(call(brain))) << "it is found again";
}

TEST_P(Calls, ALostResponderLeavesTheOthers) {
  Program& lost = start("lost");
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder first = respond(lost, gate.handler());
  Responder second = respond(arm, gate.handler());
  ASSERT_TRUE(knows(brain, 2));
  std::thread caller([&] { EXPECT_EQ(call(brain, kPatience).value().node, "arm"); });
  EXPECT_TRUE(gate.holds(2));
  cut_links(lost);
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 1; }));
  gate.open();
  caller.join();
}

TEST_P(Calls, AnAnswerThatHasNoMemoryIsAnError) {
  Program& arm = start("arm", {.publish_bytes = 1u << 20});
  Program& brain = start("brain");
  Responder responder =
      respond(arm, [](const Request&) -> Result<TensorDict> { return patterned(1, 3'000'000); });
  EXPECT_TRUE(fails_with(call(brain), ErrorCode::message_too_large, "arm"));
  EXPECT_TRUE(fails_with(arm.node.call("plan", patterned(1, 3'000'000), kPatience),
                         ErrorCode::message_too_large));
}

// Calls to all

TEST_P(Calls, OfAllGatherEveryAnswer) {
  Program& a = start("a");
  Program& b = start("b");
  Program& brain = start("brain");
  const auto answer = [](std::int64_t number) {
    return [number](const Request&) -> Result<TensorDict> { return numbered(number); };
  };
  Responder first = respond(a, answer(1));
  Responder second = respond(b, answer(2));
  ASSERT_TRUE(knows(brain, 2));
  const auto came = brain.node.call_all("plan", numbered(0), Deadline::never()).value();
  ASSERT_EQ(came.replies.size(), 2u);
  for (const Reply& reply : came.replies)
    EXPECT_EQ(number_of(reply.tensors), reply.node == "a" ? 1 : 2) << reply.node;
  EXPECT_THAT(came.unanswered, IsEmpty());
}

TEST_P(Calls, OfAllNameThoseThatDidNotAnswer) {
  Program& a = start("a");
  Program& b = start("b");
  Program& c = start("c");
  Program& brain = start("brain");
  const Gate gate;
  Responder first = respond(a, echo);
  Responder second = respond(b, [](const Request&) -> Result<TensorDict> {
    return Error{ErrorCode::not_found, "test", "no such plan"};
  });
  Responder third = respond(c, gate.handler());
  ASSERT_TRUE(knows(brain, 3));
  std::optional<CallAllReplies> came;
  // A busy machine may take long for the first two answers.
  for (auto patience = 50ms; patience < kPatience; patience *= 2) {
    came = brain.node.call_all("plan", numbered(7), patience).value();
    if (came->replies.size() == 1 && came->unanswered[0].error.code == ErrorCode::not_found) break;
  }
  ASSERT_EQ(came->replies.size(), 1u);
  EXPECT_EQ(came->replies[0].node, "a");
  ASSERT_EQ(came->unanswered.size(), 2u);
  EXPECT_EQ(came->unanswered[0].node, "b");
  EXPECT_EQ(came->unanswered[0].error.code, ErrorCode::not_found);
  EXPECT_EQ(came->unanswered[1].node, "c");
  EXPECT_EQ(came->unanswered[1].error.code, ErrorCode::timeout);
}

TEST_P(Calls, OfAllAskThoseTooThatComeMeanwhile) {
  Program& a = start("a");
  Program& b = start("b");
  Program& brain = start("brain");
  const Gate gate;
  Responder first = respond(a, gate.handler());
  std::thread caller([&] {
    const auto came = brain.node.call_all("plan", numbered(7), kPatience).value();
    EXPECT_EQ(came.replies.size(), 2u);
  });
  EXPECT_TRUE(gate.holds(1));
  Responder second = respond(b, gate.handler());
  EXPECT_TRUE(gate.holds(2));
  gate.open();
  caller.join();
}

// Closing

TEST_P(Calls, AResponderThatClosesAnswersWhatItHas) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 1});
  std::vector<std::thread> callers;
  for (int n = 0; n < 3; ++n) callers.emplace_back([&] { EXPECT_TRUE(succeeds(call(brain))); });
  EXPECT_TRUE(gate.holds(1));
  EXPECT_TRUE(eventually([&] { return responder.stats().waiting == 2; }));
  std::thread closer([&] { EXPECT_TRUE(succeeds(responder.close(kPatience))); });
  EXPECT_TRUE(knows(brain, 0));
  gate.open();
  closer.join();
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(fails_with(call(brain, kBriefly), ErrorCode::unreachable));
  EXPECT_TRUE(succeeds(responder.close(kPatience))) << "once more does nothing";
}

TEST_P(Calls, AResponderThatCannotWaitCancelsWhatItHas) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 1});
  std::vector<std::thread> callers;
  for (int n = 0; n < 2; ++n) {
    callers.emplace_back(
        [&] { EXPECT_TRUE(fails_with(call(brain, kPatience), ErrorCode::unreachable, "arm")); });
  }
  EXPECT_TRUE(gate.holds(1));
  EXPECT_TRUE(eventually([&] { return responder.stats().waiting == 1; }));
  EXPECT_TRUE(fails_with(responder.close(kBriefly), ErrorCode::timeout, "2 requests"));
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 1; }));
}

TEST_P(Calls, OneThatIsDestroyedStopsItsHandlers) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  std::optional<Responder> responder = respond(arm, gate.handler());
  std::thread caller(
      [&] { EXPECT_TRUE(fails_with(call(brain, kPatience), ErrorCode::unreachable, "arm")); });
  EXPECT_TRUE(gate.holds(1));
  responder.reset();
  EXPECT_EQ(gate.cancelled(), 1);
  caller.join();
}

TEST_P(Calls, OfANodeOrContextThatClosesEnd) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  Program& motor = start("motor");
  const Gate gate;
  Responder responder = respond(arm, gate.handler());
  std::thread first(
      [&] { EXPECT_TRUE(fails_with(call(brain, kPatience), ErrorCode::pipe_closed)); });
  std::thread second(
      [&] { EXPECT_TRUE(fails_with(call(motor, kPatience), ErrorCode::context_closed)); });
  EXPECT_TRUE(gate.holds(2));
  brain.node.close();
  first.join();
  EXPECT_TRUE(succeeds(motor.context.close(kPatience)));
  second.join();
  EXPECT_TRUE(eventually([&] { return gate.cancelled() == 2; }));
  EXPECT_TRUE(fails_with(call(brain), ErrorCode::pipe_closed));
}

TEST_P(Calls, OfAContextThatAnsweredAndClosesFail) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler());
  std::thread caller(
      [&] { EXPECT_TRUE(fails_with(call(brain, kPatience), ErrorCode::unreachable, "arm")); });
  EXPECT_TRUE(gate.holds(1));
  EXPECT_TRUE(succeeds(arm.context.close(kPatience)));
  caller.join();
  gate.open();
}

TEST_P(Calls, InAForkedChildNothingWorksAndNothingHangs) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  std::optional<Responder> responder = respond(arm, echo);
  ASSERT_TRUE(succeeds(call(brain)));
  const int status = run_in_child([&] {
    if (!fails_with(call(brain), ErrorCode::forked)) return 1;
    if (!fails_with(Responder::declare(arm.node, "other", echo), ErrorCode::forked)) return 2;
    if (!brain.node.responders().empty()) return 3;
    if (responder->stats().answered != 0 || brain.node.call_stats().calls != 0) return 4;
    responder.reset();
    programs_.clear();
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_TRUE(succeeds(call(brain))) << "the parent is not disturbed";
}

// Many calls at once

TEST_P(Calls, BeyondWhatMayBeOpenWaitAtTheCaller) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  const Gate gate;
  Responder responder = respond(arm, gate.handler(), {.handlers = 1, .waiting = 4096});
  std::vector<std::thread> callers;
  for (std::size_t n = 0; n < kMaxOpenCalls + 12; ++n)
    callers.emplace_back([&] { EXPECT_TRUE(succeeds(call(brain))); });
  EXPECT_TRUE(eventually([&] { return responder.stats().waiting == kMaxOpenCalls - 1; }));
  EXPECT_TRUE(eventually([&] { return brain.node.call_stats().calls == kMaxOpenCalls + 12; }));
  EXPECT_EQ(responder.stats().waiting, kMaxOpenCalls - 1);
  gate.open();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(responder.stats().answered, kMaxOpenCalls + 12);
}

TEST_P(Calls, OfManyThreadsAreEachAnsweredWithTheirOwn) {
  Program& left = start("left");
  Program& right = start("right");
  Program& brain = start("brain");
  Program& motor = start("motor");
  Responder first = respond(left, echo, {.handlers = 3});
  Responder second = respond(right, echo, {.handlers = 3});
  ASSERT_TRUE(knows(brain, 2));
  ASSERT_TRUE(knows(motor, 2));
  std::vector<std::thread> callers;
  for (std::uint64_t n = 0; n < 6; ++n) {
    callers.emplace_back([&, n] {
      std::mt19937_64 random(n);
      Program& from = n % 2 == 0 ? brain : motor;
      for (int i = 0; i < 60; ++i) {
        const std::uint64_t size = random() % 3 == 0 ? random() % 60'000 : random() % 600;
        const std::uint64_t seed = random();
        if (random() % 4 == 0) {
          const auto came = from.node.call_all("plan", patterned(seed, size), kPatience);
          ASSERT_TRUE(succeeds(came));
          ASSERT_EQ(came->replies.size(), 2u);
          for (const Reply& reply : came->replies)
            ASSERT_TRUE(is_patterned(reply.tensors, seed, size));
        } else {
          const auto reply = from.node.call("plan", patterned(seed, size), kPatience);
          ASSERT_TRUE(succeeds(reply));
          ASSERT_TRUE(is_patterned(reply->tensors, seed, size));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_P(Calls, WhileLinksAreCutEndOneWayOrTheOther) {
  Program& arm = start("arm");
  Program& brain = start("brain");
  Responder responder = respond(arm, echo, {.handlers = 2});
  std::atomic<int> answered{0};
  std::atomic<bool> enough{false};
  std::vector<std::thread> callers;
  for (std::uint64_t n = 0; n < 3; ++n) {
    callers.emplace_back([&, n] {
      std::mt19937_64 random(n);
      while (!enough) {
        const std::uint64_t size = random() % 30'000;
        const auto reply = brain.node.call("plan", patterned(n, size), kPatience);
        if (reply) {
          ++answered;
          ASSERT_TRUE(is_patterned(reply->tensors, n, size));
          continue;
        }
        const ErrorCode code = reply.error().code;
        ASSERT_TRUE(code == ErrorCode::peer_lost || code == ErrorCode::unreachable)
            << reply.error().message();
      }
    });
  }
  for (int cut = 1; cut <= 8; ++cut) {
    const int before = answered;
    EXPECT_TRUE(eventually([&] { return answered > before + 20; }));
    cut_links(cut % 2 == 0 ? arm : brain);
  }
  enough = true;
  for (std::thread& caller : callers) caller.join();
}

// The wire

TEST(CallWords, AreTheseBytes) {
  const detail::CallWord word{.id = 0x0102030405060708,
                              .left_ns = 0x1112131415161718,
                              .kind = detail::CallWordKind::error,
                              .code = 306};
  const std::array<std::uint8_t, 24> golden{8,    7,    6,    5,    4,    3,    2,    1,
                                            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
                                            2,    0,    0,    0,    0x32, 1,    0,    0};
  EXPECT_EQ(std::memcmp(&word, golden.data(), sizeof word), 0);
  EXPECT_EQ(detail::read_call_word(std::as_bytes(std::span(golden))).value(), word);
  const detail::CallOpening opening{.entity = 0x01020304};
  const std::array<std::uint8_t, 12> said{4, 3, 2, 1, 0, 0, 0, 0, 9, 9, 9, 9};  // of a newer peer
  EXPECT_EQ(detail::read_call_opening(std::as_bytes(std::span(said))).value(), opening);
}

// Misuse by a program

TEST(CallErrors, AreSaidWithTheirRemedy) {
  Context context = Context::create({}).value();
  Node node =
      Node::join(context, {.name = "a", .peers = std::vector<std::string>{}}, kPatience).value();
  EXPECT_TRUE(
      fails_with(node.call("a/*", numbered(1), 0s), ErrorCode::invalid_argument, "wildcards"));
  EXPECT_TRUE(fails_with(node.call_all("", numbered(1), 0s), ErrorCode::invalid_argument));
  EXPECT_TRUE(
      fails_with(Responder::declare(node, "**", echo), ErrorCode::invalid_argument, "wildcards"));
  EXPECT_TRUE(
      fails_with(Responder::declare(node, "a", nullptr), ErrorCode::invalid_argument, "empty"));
  EXPECT_TRUE(fails_with(Responder::declare(node, "a", echo, {.handlers = 0}),
                         ErrorCode::invalid_argument, "handlers"));
  EXPECT_TRUE(fails_with(Responder::declare(node, "a", echo, {.handlers = kMaxHandlers + 1}),
                         ErrorCode::invalid_argument, "256"));
  EXPECT_TRUE(fails_with(Responder::declare(node, "a", echo, {.waiting = kMaxWaitingRequests + 1}),
                         ErrorCode::invalid_argument, "4096"));
  Responder one = Responder::declare(node, "a", echo).value();
  EXPECT_EQ(one.key(), "a");
  EXPECT_TRUE(eventually([&] { return node.responders().size() == 1; }));
  node.close();
  EXPECT_TRUE(fails_with(Responder::declare(node, "b", echo), ErrorCode::pipe_closed));
}

}  // namespace
}  // namespace tendon::test
