// SPDX-License-Identifier: Apache-2.0
// Work on streams, and the life of its memory, on the double of the driver.
#include "cuda/stream_work.hpp"

#include <optional>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/cuda/gpu_work.hpp"
#include "support/log_lines.hpp"

namespace tendon::test {
namespace {

using cuda::CaptureMode;
using cuda::kLegacyStream;
using cuda::kPerThreadStream;
using cuda::Status;
using cuda::StreamFlags;
using cuda::StreamHandle;
using cuda::StreamName;
using cuda::StreamWork;

class StreamWorkTest : public GpuWorkFixture {
 protected:
  [[nodiscard]] StreamWork work_on(StreamHandle stream) {
    return StreamWork::begin(gpu, stream, "test").value();
  }
  /// Copies 64 bytes from the start of the memory to a later page of it.
  [[nodiscard]] Result<void> copy(StreamWork& work, std::uint64_t page = 1) {
    return work.copy(memory->address() + 4096 * page, memory->address(), 64);
  }
  /// Starts work on the stream that keeps the owner.
  [[nodiscard]] StreamWork copying_on(StreamHandle stream, Owner& owner) {
    auto work = work_on(stream);
    EXPECT_TRUE(succeeds(copy(work)));
    work.keep(owner.share());
    return work;
  }
  void fail(const char* call, Status status, std::uint64_t passage = 0) {
    fake.fail(call, static_cast<int>(status), passage);
  }
};

TEST_F(StreamWorkTest, CopiesOnAnyStream) {
  unsigned char value = 0;
  for (const StreamHandle stream : {new_stream(), new_stream(StreamFlags::blocking), always(0),
                                    always(kLegacyStream), always(kPerThreadStream)}) {
    ASSERT_EQ(fill(memory->address(), ++value, 64), Status::success);
    auto work = work_on(stream);
    ASSERT_TRUE(succeeds(copy(work)));
    ASSERT_TRUE(succeeds(work.wait(kPatience)));
    EXPECT_EQ(byte_at(memory->address() + 4096 + 63), value);
  }
}

TEST_F(StreamWorkTest, CopiesFromAndToTheHost) {
  std::vector<unsigned char> from(64, 9);
  std::vector<unsigned char> to(64);
  auto work = work_on(new_stream());
  ASSERT_TRUE(succeeds(
      work.copy(memory->address(), reinterpret_cast<cuda::DeviceAddress>(from.data()), 64)));
  ASSERT_TRUE(
      succeeds(work.copy(reinterpret_cast<cuda::DeviceAddress>(to.data()), memory->address(), 64)));
  ASSERT_TRUE(succeeds(work.wait(kPatience)));
  EXPECT_EQ(to, from);
}

TEST_F(StreamWorkTest, ACopyThatTheDriverRefusesIsAnError) {
  auto work = work_on(new_stream());
  EXPECT_TRUE(fails_with(work.copy(memory->address(), 0, 64), ErrorCode::system, "64 bytes"));
}

TEST_F(StreamWorkTest, KeepsMemoryUntilTheGpuHasDoneTheWork) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  { const auto work = copying_on(stream, owner); }
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(owner.where(), device_thread());
}

TEST_F(StreamWorkTest, KeepsMemoryToTheEndOfTheObject) {
  Owner owner;
  std::optional<StreamWork> work(copying_on(new_stream(), owner));
  EXPECT_TRUE(succeeds(work->wait(kPatience)));
  EXPECT_FALSE(owner.is_dropped());
  work.reset();
  EXPECT_TRUE(owner.is_dropped_eventually());
}

TEST_F(StreamWorkTest, DropsAtOnceWhatNothingWasEnqueuedFor) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  {
    auto work = work_on(stream);
    work.keep(owner.share());
    EXPECT_TRUE(succeeds(work.copy(0, 0, 0)));
    EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::timeout)) << "of others";
  }
  EXPECT_TRUE(owner.is_dropped());
  EXPECT_EQ(fake.calls("cuEventRecord"), 0u);
}

TEST_F(StreamWorkTest, OneThatIsAssignedToEndsFirst) {
  const StreamHandle stream = new_stream();
  Owner first;
  Owner second;
  block(stream);
  auto work = copying_on(stream, first);
  work = copying_on(stream, second);
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(first.is_dropped());
  auto moved = std::move(work);
  open();
  EXPECT_TRUE(first.is_dropped_eventually());
  EXPECT_TRUE(succeeds(moved.wait(kPatience)));
  EXPECT_FALSE(second.is_dropped());
}

TEST_F(StreamWorkTest, WaitsForTheGpu) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  auto work = copying_on(stream, owner);
  EXPECT_TRUE(fails_with(work.wait(kBriefly), ErrorCode::timeout, "stays in use"));
  EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::timeout, "cuda:0"));
  open();
  EXPECT_TRUE(succeeds(work.wait(kPatience)));
  EXPECT_TRUE(succeeds(work.wait(Deadline::now()))) << "it asks the driver";
}

TEST_F(StreamWorkTest, TellsInTheDeviceThread) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  auto work = copying_on(stream, owner);
  std::atomic<std::thread::id> where{};
  ASSERT_TRUE(succeeds(work.then([&](Result<void> done) {
    EXPECT_TRUE(succeeds(done));
    where = std::this_thread::get_id();
  })));
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_EQ(where.load(), std::thread::id());
  open();
  EXPECT_TRUE(eventually([&] { return where.load() == device_thread(); }));
}

TEST_F(StreamWorkTest, EventsAreUsedAgain) {
  for (int turn = 0; turn < 20; ++turn) {
    Owner owner;
    { const auto work = copying_on(new_stream(), owner); }
    EXPECT_TRUE(owner.is_dropped_eventually());
  }
  EXPECT_EQ(fake.calls("cuEventCreate"), 1u);
}

TEST_F(StreamWorkTest, LeavesNoContextCurrent) {
  Owner owner;
  { const auto work = copying_on(new_stream(), owner); }
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(context->table().context_pop(nullptr), Status::invalid_context);
}

TEST_F(StreamWorkTest, RefusesWhatIsNoStream) {
  const StreamHandle stream = new_stream();
  {
    const cuda::PrimaryContext::Current current(*context);
    ASSERT_EQ(context->table().stream_destroy(stream), Status::success);
  }
  EXPECT_TRUE(
      fails_with(StreamWork::begin(gpu, stream, "test"), ErrorCode::invalid_argument, "no stream"));
}

// Captures

TEST_F(StreamWorkTest, RefusesAStreamThatIsBeingCaptured) {
  const StreamHandle stream = new_stream(StreamFlags::blocking);
  begin_capture(stream);
  EXPECT_TRUE(fails_with(StreamWork::begin(gpu, stream, "test"), ErrorCode::invalid_argument,
                         "end the capture first"));
  for (const StreamHandle legacy : {always(0), always(kLegacyStream)})
    EXPECT_TRUE(fails_with(StreamWork::begin(gpu, legacy, "test"), ErrorCode::invalid_argument,
                           "end the capture first"));
  end_capture(stream);
  EXPECT_TRUE(succeeds(StreamWork::begin(gpu, stream, "test")));
}

TEST_F(StreamWorkTest, BreaksNoCaptureOfAnotherStream) {
  const StreamHandle captured = new_stream();
  const StreamHandle stream = new_stream();
  begin_capture(captured, CaptureMode::global);
  Owner owner;
  {
    auto work = copying_on(stream, owner);
    EXPECT_TRUE(succeeds(work.wait(kPatience)));
    EXPECT_TRUE(succeeds(work.wait(Deadline::now())));
  }
  EXPECT_TRUE(owner.is_dropped_eventually());
  end_capture(captured);
}

TEST_F(StreamWorkTest, WaitsForTheEndOfACapture) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  auto work = copying_on(stream, owner);
  begin_capture(stream);
  EXPECT_TRUE(fails_with(work.wait(kPatience), ErrorCode::invalid_argument, "capture"));
  EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::invalid_argument, "capture"));
  { const auto ended = std::move(work); }
  EXPECT_TRUE(asks_often("cuStreamGetCaptureInfo_v2"));
  end_capture(stream);
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(fake.calls("cuStreamSynchronize"), 0u);
}

TEST_F(StreamWorkTest, ALossEndsTheWaitForACapture) {
  const StreamHandle stream = new_stream();
  Owner owner;
  auto work = copying_on(stream, owner);
  begin_capture(stream);
  { const auto ended = std::move(work); }
  EXPECT_TRUE(asks_often("cuStreamGetCaptureInfo_v2"));
  EXPECT_FALSE(owner.is_dropped());
  fake.lose(0, static_cast<int>(Status::launch_failed));
  EXPECT_TRUE(owner.is_dropped_eventually());
}

// The stream of a thread

TEST(StreamNames, OfAThreadAreForThatThreadAlone) {
  const auto handle = [](std::uintptr_t number) { return reinterpret_cast<StreamHandle>(number); };
  std::vector<StreamName> names;
  for (int turn = 0; turn < 20; ++turn) {
    std::thread([&] {
      // The system may reuse the number of an earlier thread for this one.
      for (const StreamName& other : names) {
        EXPECT_TRUE(other.is_replaced_here());
        EXPECT_EQ(other.here(), handle(kLegacyStream));
      }
      names.emplace_back(handle(kPerThreadStream));
      EXPECT_FALSE(names.back().is_replaced_here());
      EXPECT_EQ(names.back().here(), handle(kPerThreadStream));
    }).join();
  }
  StreamName legacy(handle(kLegacyStream));
  std::thread([&] { EXPECT_EQ(legacy.here(), handle(kLegacyStream)); }).join();
}

TEST_F(StreamWorkTest, OnTheStreamOfAThreadMayEndInAnother) {
  Owner owner;
  block(always(kPerThreadStream));
  auto work = copying_on(always(kPerThreadStream), owner);
  std::thread([&] {
    EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::timeout));
    EXPECT_TRUE(fails_with(work.wait(kBriefly), ErrorCode::timeout));
    const auto ended = std::move(work);
  }).join();
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
}

TEST_F(StreamWorkTest, ThatEndsInAnotherThreadBreaksNoCapture) {
  const StreamHandle captured = new_stream(StreamFlags::blocking);
  Owner owner;
  block(always(kPerThreadStream));
  auto work = copying_on(always(kPerThreadStream), owner);
  begin_capture(captured);
  std::thread([&] { const auto ended = std::move(work); }).join();
  EXPECT_TRUE(asks_often("cuStreamGetCaptureInfo_v2"));
  end_capture(captured);
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
}

// Failures

TEST_F(StreamWorkTest, ALostContextIsNamed) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  auto work = copying_on(stream, owner);
  std::atomic<bool> is_told = false;
  ASSERT_TRUE(succeeds(work.then([&](Result<void> done) {
    EXPECT_TRUE(fails_with(done, ErrorCode::device_lost, "ILLEGAL_ADDRESS"));
    is_told = true;
  })));
  std::thread waiting([&] {
    EXPECT_TRUE(fails_with(work.wait(kPatience), ErrorCode::device_lost, "ILLEGAL_ADDRESS"));
  });
  EXPECT_TRUE(eventually([&] { return fake.calls("cuEventRecord") == 2; }));
  fake.lose(0, static_cast<int>(Status::illegal_address));
  waiting.join();
  EXPECT_TRUE(eventually([&] { return is_told.load(); }));
  EXPECT_TRUE(fails_with(copy(work), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(work.then({}), ErrorCode::device_lost));
  EXPECT_FALSE(owner.is_dropped());
  { const auto ended = std::move(work); }
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(owner.where(), device_thread());
  EXPECT_TRUE(fails_with(StreamWork::begin(gpu, stream, "test"), ErrorCode::device_lost,
                         "ILLEGAL_ADDRESS"));
}

TEST_F(StreamWorkTest, ALossAfterTheEndDropsTheMemory) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  { const auto work = copying_on(stream, owner); }
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  fake.lose(0, static_cast<int>(Status::illegal_address));
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(context->loss(), Status::illegal_address);
}

TEST_F(StreamWorkTest, AnEventThatFailsOnceIsRecordedByTheDeviceThread) {
  for (const char* const call : {"cuEventCreate", "cuEventRecord"}) {
    const StreamHandle stream = new_stream();
    Owner owner;
    auto work = copying_on(stream, owner);
    fail(call, Status::out_of_memory, fake.calls(call) + 1);
    { const auto ended = std::move(work); }
    EXPECT_TRUE(owner.is_dropped_eventually()) << call;
  }
  EXPECT_EQ(fake.calls("cuStreamSynchronize"), 0u);
}

TEST_F(StreamWorkTest, WithoutEventsTheDeviceThreadSynchronises) {
  std::uint64_t synchronised = 0;
  for (const char* const call : {"cuEventRecord", "cuEventCreate"}) {
    std::atomic<bool> is_open = false;
    const StreamHandle stream = new_stream();
    Owner owner;
    ASSERT_EQ(fake.launch(
                  stream, [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); },
                  &is_open),
              0);
    auto work = copying_on(stream, owner);
    fail(call, Status::out_of_memory);
    EXPECT_TRUE(fails_with(work.wait(kPatience), ErrorCode::resource_exhausted, call));
    { const auto ended = std::move(work); }
    EXPECT_TRUE(eventually([&] { return fake.calls("cuStreamSynchronize") > synchronised; }));
    EXPECT_FALSE(owner.is_dropped()) << call;
    is_open = true;
    is_open.notify_all();
    EXPECT_TRUE(owner.is_dropped_eventually()) << call;
    EXPECT_EQ(owner.where(), device_thread());
    fail(call, Status::success);
    synchronised = fake.calls("cuStreamSynchronize");
    // Leaves no free event for the next turn.
    EXPECT_TRUE(succeeds(gpu->take_event()));
  }
}

TEST_F(StreamWorkTest, AnEventThatCannotBeAskedIsNotBelieved) {
  for (const Status status : {Status::invalid_handle, Status::captured_event}) {
    const StreamHandle stream = new_stream();
    const std::uint64_t synchronised = fake.calls("cuStreamSynchronize");
    std::atomic<bool> is_open = false;
    ASSERT_EQ(fake.launch(
                  stream, [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); },
                  &is_open),
              0);
    Owner owner;
    auto work = copying_on(stream, owner);
    fail("cuEventQuery", status);
    EXPECT_FALSE(work.wait(kPatience).has_value());
    is_open = true;
    is_open.notify_all();
    { const auto ended = std::move(work); }
    EXPECT_TRUE(owner.is_dropped_eventually());
    EXPECT_EQ(fake.calls("cuStreamSynchronize"), synchronised + 1);
    fail("cuEventQuery", Status::success);
  }
}

TEST_F(StreamWorkTest, MemoryStaysWhereNothingTellsWhenTheWorkIsDone) {
  LogLines lines;
  Owner on_a_stream;
  Owner on_that_of_a_thread;
  fail("cuEventRecord", Status::invalid_value);
  fail("cuStreamSynchronize", Status::invalid_value);
  { const auto work = copying_on(new_stream(), on_a_stream); }
  EXPECT_TRUE(eventually([&] { return fake.pending(0) == 0; }));  // both copies write to one place
  { const auto work = copying_on(always(kPerThreadStream), on_that_of_a_thread); }
  settle();
  settle();
  EXPECT_TRUE(lines.have("stays to the end of the process"));
  EXPECT_EQ(lines.all().size(), 2u);
  EXPECT_EQ(fake.calls("cuStreamSynchronize"), 1u);
  EXPECT_FALSE(on_a_stream.is_dropped());
  EXPECT_FALSE(on_that_of_a_thread.is_dropped());
  gpu.reset();
  settle();
  EXPECT_TRUE(on_a_stream.is_dropped()) << "a test ends too";
}

TEST_F(StreamWorkTest, AContextThatCannotBeMadeCurrentIsAnError) {
  Owner owner;
  auto work = copying_on(new_stream(), owner);
  fail("cuCtxPushCurrent_v2", Status::out_of_memory);
  EXPECT_TRUE(fails_with(copy(work), ErrorCode::resource_exhausted, "cuCtxPushCurrent"));
  EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::resource_exhausted));
  EXPECT_TRUE(fails_with(StreamWork::begin(gpu, always(0), "test"), ErrorCode::resource_exhausted));
  { const auto ended = std::move(work); }
  settle();
  EXPECT_FALSE(owner.is_dropped());
  fail("cuCtxPushCurrent_v2", Status::success);
  gpu.reset();
  settle();
  EXPECT_TRUE(owner.is_dropped());
}

TEST_F(StreamWorkTest, AtTheEndOfTheProcessMemoryIsDropped) {
  Owner owner;
  auto work = copying_on(new_stream(), owner);
  ASSERT_TRUE(succeeds(work.wait(kPatience)));
  fake.deinitialise();
  { const auto ended = std::move(work); }
  EXPECT_TRUE(owner.is_dropped_eventually());
}

TEST_F(StreamWorkTest, AForkedChildCallsNothing) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  std::optional<StreamWork> work(copying_on(stream, owner));
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    const auto begun = StreamWork::begin(gpu, stream, "test");
    if (begun || begun.error().code != ErrorCode::forked) return 1;
    const auto waited = work->wait(kPatience);
    if (waited || waited.error().code != ErrorCode::forked) return 2;
    const auto copied = copy(*work);
    if (copied || copied.error().code != ErrorCode::forked) return 3;
    work.reset();
    if (!owner.is_dropped()) return 4;
    return fake.calls(nullptr) == before ? 0 : 5;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  open();
  EXPECT_TRUE(succeeds(work->wait(kPatience))) << "the parent goes on";
}

class WorkOnTwoGpus : public testing::Test {
 protected:
  const Variable devices{"TENDON_CUDA_DOUBLE_DEVICES", "2"};
};

TEST_F(WorkOnTwoGpus, RefusesAStreamOfAnotherContext) {
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  cuda::DeviceThread thread(*driver);
  std::vector<std::shared_ptr<cuda::Gpu>> gpus;
  for (const int ordinal : {0, 1})
    gpus.push_back(std::make_shared<cuda::Gpu>(
        thread
            .run([&] { return cuda::PrimaryContext::retain(*driver, thread, ordinal); }, kPatience)
            .value(),
        thread));
  StreamHandle stream = nullptr;
  {
    const cuda::PrimaryContext::Current current(*gpus[1]->context());
    ASSERT_EQ(driver->table().stream_create(&stream, StreamFlags::non_blocking), Status::success);
  }
  EXPECT_TRUE(fails_with(StreamWork::begin(gpus[0], stream, "test"), ErrorCode::invalid_argument,
                         "another context than the primary one of cuda:0"));
  EXPECT_TRUE(succeeds(StreamWork::begin(gpus[1], stream, "test")));
}

class WorkOnABusyGpu : public StreamWorkTest {
 protected:
  const Variable seed{"TENDON_CUDA_DOUBLE_SEED", "7"};
  void SetUp() override {
    fake.reset();
    StreamWorkTest::SetUp();
  }
};

TEST_F(WorkOnABusyGpu, ManyThreadsNeverLoseMemoryEarly) {
  constexpr int kThreads = 4;
  constexpr int kTurns = 50;
  std::atomic<int> dropped = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      const StreamHandle stream = n == 0 ? always(kPerThreadStream) : new_stream();
      for (int turn = 0; turn < kTurns; ++turn) {
        auto work = work_on(stream);
        EXPECT_TRUE(succeeds(copy(work, n + 1)));
        const auto done = std::make_shared<std::atomic<bool>>(false);
        {
          const cuda::PrimaryContext::Current current(*context);
          EXPECT_EQ(fake.launch(
                        stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; },
                        done.get()),
                    0);
        }
        work.keep({nullptr, [&dropped, done](const void*) {
                     EXPECT_TRUE(*done);
                     ++dropped;
                   }});
        if (turn % 5 == 0) {
          EXPECT_TRUE(succeeds(work.wait(kPatience)));
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_TRUE(eventually([&] { return dropped == kThreads * kTurns; }));
}

}  // namespace
}  // namespace tendon::test
