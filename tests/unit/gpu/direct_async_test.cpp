// SPDX-License-Identifier: Apache-2.0
// Asynchronous sends of tensors that stay on their GPU, and Contexts that stage nothing, on the
// double of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <tendon/session/limits.hpp>
#include <utility>
#include <vector>

#include "pipe/gpu_source.hpp"
#include "pipe/held_for_gpu.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr ContextOptions kDirectOnly{.device_path = DevicePath::direct_only};

class DirectAsync : public GpuPipeTest {
 protected:
  [[nodiscard]] TensorDict gpu_batch(std::uint64_t seed, std::int64_t size) {
    Tensor x = Tensor::empty(DType::u8, {size}).value();
    fill_pattern(x.mutable_bytes(), seed);
    TensorDict batch;
    batch.set("x", on_gpu(x));
    return batch;
  }
  testing::AssertionResult is_next(PipePair& pair, std::uint64_t seed) {
    const auto received = pair.server.recv(kPatience);
    if (!received) return testing::AssertionFailure() << received.error().message();
    if (!has_pattern(read((*received)["x"]).bytes(), seed))
      return testing::AssertionFailure() << "it is not batch " << seed;
    return testing::AssertionSuccess();
  }
  /// Waits until the peer has answered, and memory for such batches exists.
  void warm(PipePair& pair, std::int64_t size = 4096) {
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(0, size), kPatience)));
    ASSERT_TRUE(is_next(pair, 0));
  }
  static std::uint64_t used_bytes(const PipePair& pair) {
    auto& core = *detail::ContextCore::of(pair.client_context);
    (void)core.links().all()->front()->collect_returns();
    const auto stats = core.memory().passed->stats();
    return stats.empty() ? 0 : stats.front().second.used_bytes;
  }
  /// Fills the window with messages that the peer does not take.
  [[nodiscard]] static std::int64_t fill_window(PipePair& pair) {
    std::int64_t count = 0;
    while (pair.client.send(numbered(count), Deadline::now())) ++count;
    EXPECT_GT(count, kPipeWindowMessages / 2);
    return count;
  }
  static void take_window(PipePair& pair, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), i);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DirectAsync, testing::Values(kShm, kShmManual), way_name);

TEST_P(DirectAsync, ASendStaysOnItsGpuAndIsDoneWhenThatHasMadeIt) {
  PipePair pair = connect();
  warm(pair);
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(gpu_batch(1, 4096), {.stream = stream});
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience))) << "waits for no GPU";
  EXPECT_TRUE(fails_with(sent.wait(10ms), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout, "GPU")) << "in their order";
  gate.open();
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
  const PipeStats stats = pair.client.stats();
  EXPECT_EQ(stats.copies_d2d, 2u);
  EXPECT_EQ(stats.copies_d2h, 0u);
}

TEST_P(DirectAsync, ManySendsOfBothKindsArriveInOrder) {
  PipePair pair = connect();
  warm(pair);
  std::vector<Completion<void>> sent;
  for (std::uint64_t i = 1; i <= 60; ++i) {
    if (i % 3 == 0)
      ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(i, 4096), kPatience)));
    else
      sent.push_back(pair.client.send_async(gpu_batch(i, 4096)));
  }
  for (std::uint64_t i = 1; i <= 60; ++i) ASSERT_TRUE(is_next(pair, i)) << i;
  for (auto& each : sent) EXPECT_TRUE(succeeds(each.wait(kPatience)));
  EXPECT_EQ(pair.client.stats().copies_d2h, 0u);
}

TEST_P(DirectAsync, BeforeTheAnswerSendsAreStagedAndThenTheyAreDirect) {
  PipePair pair = connect();
  std::uint64_t i = 1;
  for (; pair.client.stats().copies_d2d == 0 && i < 1000; ++i) {
    ASSERT_TRUE(succeeds(pair.client.send_async(gpu_batch(i, 4096)).wait(kPatience)));
    ASSERT_TRUE(is_next(pair, i));
  }
  EXPECT_EQ(pair.client.stats().copies_d2d, 1u);
  EXPECT_EQ(pair.client.stats().copies_d2h, i - 2) << "the first ones";
  EXPECT_NE(pair.client.stats().copies_d2h, 0u);
}

// The caller has returned long before its message gets a place: the host writes the word.
TEST_P(DirectAsync, AFilledSlotWaitsForAPlaceInTheWindow) {
  const auto stream = make_stream();
  for (const bool is_copied_first : {true, false}) {
    PipePair pair = connect();
    warm(pair);
    const auto count = fill_window(pair);
    auto gate = std::make_unique<Gate>(fake, stream);
    auto sent = pair.client.send_async(gpu_batch(7, 4096), {.stream = stream});
    const std::uint64_t words = fake.calls("cuStreamWriteValue64_v2");
    if (is_copied_first) {
      gate.reset();
      synchronize(kGpu0, stream);
    }
    EXPECT_TRUE(fails_with(sent.wait(10ms), ErrorCode::timeout));
    take_window(pair, count);
    if (!is_copied_first) {
      EXPECT_TRUE(fails_with(sent.wait(10ms), ErrorCode::timeout));
      EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
    }
    gate.reset();
    EXPECT_TRUE(succeeds(sent.wait(kPatience)));
    EXPECT_TRUE(is_next(pair, 7));
    EXPECT_EQ(fake.calls("cuStreamWriteValue64_v2"), words) << "the host writes it";
    EXPECT_EQ(pair.server.stats().incomplete, 0u);
    EXPECT_TRUE(eventually([&] { return used_bytes(pair) == 0; }));
  }
}

TEST_P(DirectAsync, ACancelledSendIsNotDeliveredAndItsSlotReturns) {
  PipePair pair = connect();
  warm(pair);
  const auto count = fill_window(pair);
  const auto stream = make_stream();
  {
    Gate gate(fake, stream);
    auto sent = pair.client.send_async(gpu_batch(1, 4096), {.stream = stream});
    auto next = pair.client.send_async(numbered(-1));
    sent.cancel();
    EXPECT_TRUE(fails_with(sent.wait(kPatience), ErrorCode::cancelled));
    EXPECT_NE(used_bytes(pair), 0u) << "the GPU still writes there";
    take_window(pair, count);
    EXPECT_TRUE(succeeds(next.wait(kPatience)));
    EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), -1);
  }
  EXPECT_TRUE(eventually([&] { return used_bytes(pair) == 0; }));
}

TEST_P(DirectAsync, ASendThatWasShownCannotBeCancelled) {
  PipePair pair = connect();
  warm(pair);
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(gpu_batch(1, 4096), {.stream = stream});
  sent.cancel();
  gate.open();
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
}

TEST_P(DirectAsync, TheEndOfThePipeEndsASendThatHasNoPlace) {
  PipePair pair = connect();
  warm(pair);
  (void)fill_window(pair);
  auto sent = pair.client.send_async(gpu_batch(1, 4096));
  pair.server.cancel();
  EXPECT_TRUE(fails_with(sent.wait(kPatience), ErrorCode::cancelled));
  EXPECT_TRUE(eventually([&] { return used_bytes(pair) == 0; }));
}

TEST_P(DirectAsync, CloseWaitsForTheGpu) {
  PipePair pair = connect();
  warm(pair);
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(gpu_batch(1, 4096), {.stream = stream});
  EXPECT_TRUE(fails_with(pair.client.flush(10ms), ErrorCode::timeout));
  auto closed =
      std::async(std::launch::async, [&] { return pair.client_context.close(kPatience); });
  gate.open();
  EXPECT_TRUE(succeeds(closed.get()));
  EXPECT_TRUE(sent.done());
  EXPECT_TRUE(is_next(pair, 1));
}

TEST_P(DirectAsync, AWordThatCannotBeWrittenFailsItsSend) {
  PipePair pair = connect();
  warm(pair);
  fake.fail("cuStreamWriteValue64_v2", 1, 0);
  auto sent = pair.client.send_async(gpu_batch(1, 4096));
  EXPECT_TRUE(fails_with(sent.wait(kPatience), ErrorCode::system, "server"));
  fake.fail("cuStreamWriteValue64_v2", 0, 0);
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(2, 4096), kPatience)));
  EXPECT_TRUE(is_next(pair, 2));
  EXPECT_EQ(pair.server.stats().incomplete, 1u);
}

// DevicePath::direct_only

TEST_P(DirectAsync, DirectOnlyWaitsForTheAnswer) {
  PipePair pair = connect(kDirectOnly);
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
  EXPECT_TRUE(pair.client.device_paths().at(0).is_direct);
}

TEST_P(DirectAsync, DirectOnlyHoldsAnAsynchronousSendUntilTheAnswer) {
  PipePair pair = connect(kDirectOnly);
  auto first = pair.client.send_async(gpu_batch(1, 4096));
  auto second = pair.client.send_async(numbered(2));
  auto third = pair.client.send_async(gpu_batch(3, 500'000));
  EXPECT_TRUE(succeeds(first.wait(kPatience)));
  EXPECT_TRUE(succeeds(second.wait(kPatience)));
  EXPECT_TRUE(succeeds(third.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
  EXPECT_TRUE(is_next(pair, 3));
  EXPECT_EQ(pair.client.stats().copies_d2d, 2u);
  EXPECT_EQ(pair.client.stats().copies_d2h, 0u);
}

TEST_P(DirectAsync, DirectOnlyReadsAHeldBatchBehindItsStream) {
  PipePair pair = connect(kDirectOnly);
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(gpu_batch(1, 4096), {.stream = stream});
  EXPECT_TRUE(fails_with(sent.wait(10ms), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
  gate.open();
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
}

TEST_P(DirectAsync, DirectOnlyWaitsForRoomUntilItsDeadline) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20, .device_path = DevicePath::direct_only});
  const TensorDict batch = gpu_batch(1, 6 << 20);
  std::vector<TensorDict> held;
  Result<void> sent;
  while ((sent = pair.client.send(batch, held.empty() ? kPatience : 500ms)) && held.size() < 12)
    held.push_back(pair.server.recv(kPatience).value());
  EXPECT_TRUE(fails_with(sent, ErrorCode::resource_exhausted));
  EXPECT_EQ(pair.client.stats().copies_d2h, 0u);
  auto waits = std::async(std::launch::async, [&] { return pair.client.send(batch, kPatience); });
  auto queued = pair.client.send_async(batch);
  held.clear();
  EXPECT_TRUE(succeeds(waits.get()));
  EXPECT_TRUE(succeeds(queued.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
  EXPECT_TRUE(is_next(pair, 1));
  EXPECT_TRUE(fails_with(pair.client.send(gpu_batch(1, 30 << 20), kPatience),
                         ErrorCode::message_too_large, "third"));
  EXPECT_TRUE(fails_with(pair.client.send_async(gpu_batch(1, 30 << 20)).wait(kPatience),
                         ErrorCode::message_too_large, "third"));
}

// Memory that becomes free without a word of a peer: nobody is told about dropped loans.
TEST_P(DirectAsync, AHeldBatchIsTriedAgainByTheClock) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20, .device_path = DevicePath::direct_only});
  const TensorDict batch = gpu_batch(1, 6 << 20);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  EXPECT_TRUE(is_next(pair, 1));
  std::vector<Loan> loans;
  auto loan = pair.client.loan(batch.schema(), {.device = kGpu0}, kPatience);
  for (; loan; loan = pair.client.loan(batch.schema(), {.device = kGpu0}, 100ms))
    loans.push_back(*std::move(loan));
  EXPECT_TRUE(fails_with(loan, ErrorCode::resource_exhausted));
  const auto& core = detail::ContextCore::of(pair.client_context);
  const auto link = core->links().all()->front();
  const auto source = detail::gpu_source(batch, *link, kPatience).value();
  const auto told_count = std::make_shared<std::atomic<int>>(0);
  const auto held = std::make_shared<detail::HeldForGpu>(detail::HeldForGpu::What{
      batch, source, detail::placed_layout(*batch.schema(), *source.placement), core, link,
      [told_count] { ++*told_count; }});
  const auto is_told = [&](int count) {
    return eventually([&] {
      if (way().client_progress == Progress::manual) (void)pair.client_context.progress();
      return *told_count >= count;
    });
  };
  ASSERT_TRUE(succeeds(held->begin(kStreamPerThread)));
  ASSERT_TRUE(is_told(1)) << "its stream has done what it had";
  held->try_again();
  ASSERT_TRUE(is_told(2));
  held->try_again();
  ASSERT_TRUE(is_told(3));
  EXPECT_FALSE(held->answer().is_over());
  loans.clear();
  for (int count = 4; !held->answer().is_over() && count < 100; ++count) {
    held->try_again();
    ASSERT_TRUE(is_told(count));
  }
  EXPECT_TRUE(succeeds(held->answer().result()));
  EXPECT_NE(held->take(), nullptr);
}

// The share of a link has room for one of these.
TEST_P(DirectAsync, DirectOnlyLeavesRoomToTheSendThatWaitsLongest) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20, .device_path = DevicePath::direct_only});
  constexpr std::int64_t kSize = 20 << 20;
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, kSize), kPatience)));
  auto held = pair.server.recv(kPatience);
  auto second = pair.client.send_async(gpu_batch(2, kSize));
  EXPECT_TRUE(fails_with(second.wait(20ms), ErrorCode::timeout));
  EXPECT_TRUE(succeeds(held));
  held = Error{ErrorCode::internal, "test", "dropped"};
  EXPECT_TRUE(eventually([&] { return used_bytes(pair) == 0 || second.done(); }));
  auto third = pair.client.send_async(gpu_batch(3, kSize));
  EXPECT_TRUE(succeeds(second.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 2));
  EXPECT_TRUE(succeeds(third.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 3));
}

// The first send waits for its stream, while there is room for the others.
TEST_P(DirectAsync, DirectOnlyPassesNoSendThatIsHeld) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20, .device_path = DevicePath::direct_only});
  constexpr std::int64_t kSize = 20 << 20;
  const TensorDict batch = gpu_batch(3, kSize);
  const auto schema = Schema::make({{"x", DType::u8, {30 << 20}}}).value();
  Loan loan = pair.client.loan(schema, {.device = kGpu0}, kPatience).value();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, kSize), kPatience)));
  auto view = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(view));
  wait_for_device_thread();
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto held = pair.client.send_async(gpu_batch(2, kSize), {.stream = stream});
  const std::uint64_t full = used_bytes(pair);
  view = Error{ErrorCode::internal, "test", "dropped"};
  ASSERT_TRUE(eventually([&] { return used_bytes(pair) < full; }));
  EXPECT_TRUE(fails_with(pair.client.send(batch, Deadline::now()), ErrorCode::timeout, "in front"));
  EXPECT_TRUE(fails_with(pair.client.send(batch, 20ms), ErrorCode::timeout, "in front"));
  // NOLINTBEGIN(bugprone-use-after-move): after an error it is as it was
  for (const auto& sent : {pair.client.send_async(std::move(loan)).wait(kPatience),
                           pair.client.send(std::move(loan), kPatience)})
    EXPECT_TRUE(fails_with(sent, ErrorCode::message_too_large, "third"));
  EXPECT_FALSE(loan.empty()) << "it is not held, but refused";
  // NOLINTEND(bugprone-use-after-move)
  auto last = std::async(std::launch::async, [&] { return pair.client.send(batch, kPatience); });
  gate.open();
  EXPECT_TRUE(succeeds(held.wait(kPatience)));
  EXPECT_TRUE(is_next(pair, 2));
  EXPECT_TRUE(succeeds(last.get()));
  EXPECT_TRUE(is_next(pair, 3));
}

TEST_P(DirectAsync, AHeldSendIsCancelledAndEndsWithItsPipe) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20, .device_path = DevicePath::direct_only});
  const TensorDict batch = gpu_batch(1, 6 << 20);
  std::vector<TensorDict> held;
  while (pair.client.send(batch, held.empty() ? kPatience : 50ms))
    held.push_back(pair.server.recv(kPatience).value());
  auto first = pair.client.send_async(batch);
  auto second = pair.client.send_async(batch);
  first.cancel();
  EXPECT_TRUE(fails_with(first.wait(kPatience), ErrorCode::cancelled));
  pair.server.cancel();
  EXPECT_TRUE(fails_with(second.wait(kPatience), ErrorCode::cancelled));
}

TEST_P(DirectAsync, DirectOnlyRefusesWhatThePeerCannotMap) {
  PipePair pair = connect(kDirectOnly);
  fake.fail("cuMemImportFromShareableHandle", static_cast<int>(cuda::Status::not_supported), 0);
  EXPECT_TRUE(fails_with(pair.client.send(gpu_batch(1, 4096), kPatience), ErrorCode::not_direct,
                         "the driver of the peer cannot map memory of this GPU"));
  fake.fail("cuMemImportFromShareableHandle", 0, 0);
  EXPECT_TRUE(fails_with(pair.client.send_async(gpu_batch(1, 4096)).wait(kPatience),
                         ErrorCode::not_direct, "cuda:0"));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(3), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 3);
}

class DirectOnlyOverTcp : public DirectAsync {};
INSTANTIATE_TEST_SUITE_P(Ways, DirectOnlyOverTcp, testing::Values(kTcp), way_name);

TEST_P(DirectOnlyOverTcp, IsRefusedBeforeAnythingIsSent) {
  PipePair pair = connect(kDirectOnly);
  for (const auto& sent : {pair.client.send(gpu_batch(1, 4096), kPatience),
                           pair.client.send_async(gpu_batch(1, 4096)).wait(kPatience)}) {
    EXPECT_TRUE(fails_with(sent, ErrorCode::not_direct, "tcp"));
    EXPECT_TRUE(fails_with(sent, ErrorCode::not_direct, "cuda:0"));
    EXPECT_TRUE(fails_with(sent, ErrorCode::not_direct, "server"));
  }
  EXPECT_EQ(pair.client.stats().messages_sent, 0u);
}

}  // namespace
}  // namespace tendon::test
