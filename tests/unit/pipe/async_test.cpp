// SPDX-License-Identifier: Apache-2.0
// docs/threads.md, "Callbacks" and "Cancelling and dropping": the `_async` calls.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Async : public PipeTest {
 protected:
  template <class T>
  static bool finishes(const Completion<T>& completion, Context& context) {
    return eventually([&] { return completion.done(); }, [&] { context.progress(); });
  }
};
TENDON_ON_EVERY_WAY(Async);

TEST_P(Async, AReceiveIsFinishedByAMessageThatComesLater) {
  PipePair pair = connect();
  Completion<TensorDict> next = pair.client.recv_async();
  EXPECT_FALSE(next.done());
  EXPECT_EQ(next.state(), CompletionStatus::pending);
  ASSERT_TRUE(succeeds(pair.server.send(patterned(1, 100'000), kPatience)));
  ASSERT_TRUE(finishes(next, pair.client_context));
  EXPECT_EQ(next.state(), CompletionStatus::succeeded);
  EXPECT_TRUE(is_patterned(next.wait(0s).value(), 1, 100'000));
}

TEST_P(Async, AReceiveTakesAMessageThatIsThere) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv_async().wait(kPatience).value()), 1);
}

TEST_P(Async, ASecondWaitAnswersAlreadyTaken) {
  PipePair pair = connect();
  Completion<void> sent = pair.client.send_async(numbered(1));
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  EXPECT_TRUE(fails_with(sent.wait(kPatience), ErrorCode::already_taken));
  Completion<TensorDict> received = pair.server.recv_async();
  EXPECT_TRUE(succeeds(received.wait(kPatience)));
  EXPECT_TRUE(fails_with(received.wait(0s), ErrorCode::already_taken));
}

TEST_P(Async, SendsKeepTheirTensorsAndTheirOrder) {
  PipePair pair = connect();
  std::vector<Completion<void>> sends;
  for (std::uint64_t n = 0; n < 30; ++n)
    sends.push_back(pair.client.send_async(patterned(n, 40'000)));
  for (std::uint64_t n = 0; n < 30; ++n) {
    Completion<TensorDict> received = pair.server.recv_async();
    ASSERT_TRUE(
        eventually([&] { return received.done(); }, [&] { pair.client_context.progress(); }));
    ASSERT_TRUE(is_patterned(received.wait(0s).value(), n, 40'000)) << n;
  }
  for (auto& sent : sends) EXPECT_TRUE(succeeds(sent.wait(kPatience)));
}

TEST_P(Async, ASendGoesOnWhenItsCompletionIsDropped) {
  PipePair pair = connect();
  for (std::uint64_t n = 0; n < 5; ++n) (void)pair.client.send_async(patterned(n, 400'000));
  for (std::uint64_t n = 0; n < 5; ++n) {
    Completion<TensorDict> received = pair.server.recv_async();
    ASSERT_TRUE(
        eventually([&] { return received.done(); }, [&] { pair.client_context.progress(); }));
    ASSERT_TRUE(is_patterned(received.wait(0s).value(), n, 400'000)) << n;
  }
}

TEST_P(Async, SeveralReceivesTakeMessagesInTheirOrder) {
  PipePair pair = connect();
  Completion<TensorDict> first = pair.client.recv_async();
  Completion<TensorDict> second = pair.client.recv_async();
  Completion<TensorDict> third = pair.client.recv_async();
  for (std::int64_t n = 1; n <= 3; ++n)
    ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
  EXPECT_EQ(number_of(third.wait(kPatience).value()), 3);
  EXPECT_EQ(number_of(first.wait(kPatience).value()), 1);
  EXPECT_EQ(number_of(second.wait(kPatience).value()), 2);
}

TEST_P(Async, LoansBytesMessagesAndInto) {
  PipePair pair = connect();
  Loan loan = pair.client.loan(bytes_schema(20'000), kPatience).value();
  fill_pattern(loan["x"].mutable_bytes(), 1);
  EXPECT_TRUE(succeeds(pair.client.send_async(std::move(loan)).wait(kPatience)));
  EXPECT_TRUE(loan.empty());
  TensorDict into = patterned(0, 20'000);
  EXPECT_TRUE(succeeds(pair.server.recv_into_async(into).wait(kPatience)));
  EXPECT_TRUE(is_patterned(into, 1, 20'000));

  Storage bytes = Storage::allocate(30'000).value();
  fill_pattern({bytes.data(), bytes.size_bytes()}, 2);
  const std::string header = "beside them";
  auto sent = pair.client.send_async(bytes, {.tag = 77, .header = as_bytes(header)});
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  const Message message = pair.server.recv_message_async().wait(kPatience).value();
  EXPECT_EQ(message.tag, 77u);
  EXPECT_EQ(as_text(message.header.bytes()), header);
  EXPECT_TRUE(has_pattern(message.bytes.bytes(), 2));
  EXPECT_EQ(message.bytes.size_bytes(), 30'000u);
}

TEST_P(Async, AReceiveIntoGivesBackItsDestinationWithTheValues) {
  PipePair pair = connect();
  for (const std::uint64_t size : {10ull, 3ull << 20}) {
    TensorDict batch = patterned(size, size);
    batch.set("step", static_cast<std::int64_t>(size));
    TensorDict into = patterned(0, size);
    into.set("step", -1);
    auto received = pair.client.recv_into_async(into);
    auto sent = pair.server.send_async(batch);
    const TensorDict filled = received.wait(kPatience).value();
    EXPECT_EQ(filled["x"].data(), into["x"].data());
    EXPECT_TRUE(bitwise_equal(filled, batch));
    EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  }
}

TEST_P(Async, ABlockingReceiveComesAfterThosePostedBefore) {
  PipePair pair = connect();
  Completion<TensorDict> pending = pair.client.recv_async();
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(2), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 2);
  EXPECT_EQ(number_of(pending.wait(kPatience).value()), 1);
}

TEST_P(Async, ABlockingSendComesAfterThoseQueuedBefore) {
  PipePair pair = connect();
  std::vector<Completion<void>> queued;
  for (std::int64_t n = 0; n < 400; ++n) queued.push_back(pair.server.send_async(numbered(n)));
  std::thread last([&] { EXPECT_TRUE(succeeds(pair.server.send(numbered(400), kPatience))); });
  for (std::int64_t n = 0; n <= 400; ++n)
    ASSERT_EQ(number_of(pair.client.recv(kPatience).value()), n);
  last.join();
}

TEST_P(Async, ErrorsReachTheCompletion) {
  PipePair pair = connect();
  Completion<TensorDict> received = pair.server.recv_async();
  pair.client.cancel();
  EXPECT_TRUE(fails_with(received.wait(kPatience), ErrorCode::cancelled, "client"));
  EXPECT_EQ(received.state(), CompletionStatus::failed);

  PipePair ending = connect();
  Completion<TensorDict> last = ending.server.recv_async();
  ASSERT_TRUE(succeeds(ending.client.close(kPatience)));
  EXPECT_TRUE(fails_with(last.wait(kPatience), ErrorCode::end_of_stream));
}

TEST_P(Async, AcceptToo) {
  PipePair pair = connect();
  Completion<Pipe> accepted = pair.listener.accept_async();
  EXPECT_FALSE(accepted.done());
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  Pipe to = accepted.wait(kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(8), kPatience)));
  EXPECT_EQ(number_of(to.recv(kPatience).value()), 8);
}

TEST_P(Async, CallbacksRunOutsideCallsAndLocks) {
  PipePair pair = connect();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::int64_t> seen;
  std::thread::id runner;
  Completion<TensorDict> next = pair.client.recv_async();
  next.on_done([&](Result<TensorDict> received) {
    // A callback may call Tendon, because no lock is held.
    EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::timeout));
    (void)pair.client_context.describe();
    std::lock_guard lock(mutex);
    seen.push_back(received ? number_of(*received) : -1);
    runner = std::this_thread::get_id();
    changed.notify_all();
  });
  ASSERT_TRUE(succeeds(pair.server.send(numbered(5), kPatience)));
  if (way().client_progress == Progress::manual) {
    // Nothing happens between calls of this thread.
    EXPECT_TRUE(seen.empty());
    ASSERT_TRUE(eventually([&] { return !seen.empty(); }, [&] { pair.client_context.progress(); }));
    EXPECT_EQ(runner, std::this_thread::get_id());
  } else {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return !seen.empty(); }));
    EXPECT_NE(runner, std::this_thread::get_id());
  }
  EXPECT_EQ(seen, std::vector<std::int64_t>{5});
  EXPECT_TRUE(fails_with(next.wait(0s), ErrorCode::already_taken)) << "the callback took it";
}

TEST_P(Async, ACallbackForWhatIsDoneAlreadyStillRunsElsewhere) {
  PipePair pair = connect();
  Completion<void> sent = pair.client.send_async(numbered(1));
  ASSERT_TRUE(finishes(sent, pair.client_context));
  std::atomic<int> calls{0};
  sent.on_done([&](Result<void> result) {
    EXPECT_TRUE(succeeds(result));
    ++calls;
  });
  if (way().client_progress == Progress::manual) {
    EXPECT_EQ(calls, 0);
  }
  ASSERT_TRUE(eventually([&] { return calls == 1; },
                         [&] {
                           pair.client_context.progress();
                           std::this_thread::yield();
                         }));
}

TEST_P(Async, WhatACallbackStartsAtTheEndOfItsContextEndsToo) {
  PipePair pair = connect();
  Completion<void> sent = pair.client.send_async(numbered(1));
  ASSERT_TRUE(finishes(sent, pair.client_context));
  std::vector<Completion<TensorDict>> started;
  int failures = 0;
  std::function<void()> start = [&] {
    started.push_back(pair.client.recv_async());
    started.back().on_done([&](const Result<TensorDict>& received) {
      EXPECT_FALSE(received.has_value());
      if (++failures < 3) start();
    });
  };
  // Where the Context has no thread, this runs only inside close().
  sent.on_done([&](const Result<void>&) { start(); });
  EXPECT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_EQ(failures, 3);
}

TEST_P(Async, CompletionsOutliveTheirPipeAndContext) {
  std::optional<Completion<TensorDict>> pending;
  std::optional<Completion<TensorDict>> done;
  {
    PipePair pair = connect();
    ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
    done = pair.client.recv_async();
    ASSERT_TRUE(finishes(*done, pair.client_context));
    pending = pair.client.recv_async();
  }
  EXPECT_EQ(number_of(done->wait(0s).value()), 1);
  const auto ended = pending->wait(kPatience);
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().code, ErrorCode::timeout) << "it must not stay pending for ever";
}

TEST_P(Async, ASendThatWaitsIsNotOvertakenByALaterAsynchronousOne) {
  const ContextOptions options{.link_cap_bytes = 4 << 20, .pool_cap_bytes = 4 << 20};
  PipePair pair = connect(options, options);
  constexpr std::uint64_t kSize = 300'000;
  const TensorDict large = patterned(1, kSize);
  std::uint64_t sent_count = 0;
  while (pair.client.send(large, 0s)) ++sent_count;
  const std::uint64_t waits = pair.client.stats().waits;
  std::jthread sender([&] { EXPECT_TRUE(succeeds(pair.client.send(large, kPatience))); });
  ASSERT_TRUE(eventually([&] { return pair.client.stats().waits > waits; }));
  Completion<void> small = pair.client.send_async(numbered(7));
  for (std::uint64_t i = 0; i <= sent_count; ++i) {
    auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received)) << "message " << i;
    EXPECT_TRUE(is_patterned(*received, 1, kSize)) << "message " << i;
  }
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 7);
  EXPECT_TRUE(succeeds(small.wait(kPatience)));
}

}  // namespace
}  // namespace tendon::test
