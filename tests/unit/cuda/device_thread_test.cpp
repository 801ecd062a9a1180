// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_thread.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/child.hpp"
#include "support/cuda/device_fixture.hpp"

namespace tendon::test {
namespace {

using cuda::DeviceThread;
using cuda::WaitCondition;
using cuda::WatchedEvent;

class OnDeviceThread : public DeviceFixture {
 protected:
  /// The device thread stays in a job until this is opened.
  struct Gate {
    std::atomic<bool> is_reached = false;
    std::atomic<bool> is_open = false;
    void pass() {
      is_reached = true;
      is_reached.notify_all();
      is_open.wait(false);
    }
    void open() {
      is_open = true;
      is_open.notify_all();
    }
  };

  /// An event that the GPU reaches when the word is written.
  EventHandle event_behind(const HostWord& word, StreamHandle stream) {
    const EventHandle event = new_event();
    EXPECT_EQ(api().stream_wait_value64(stream, word.address(), 1, WaitCondition::at_least),
              Status::success);
    EXPECT_EQ(api().event_record(event, stream), Status::success);
    return event;
  }
};

/// A function of the test that the device thread of the process can run.
Result<int> answer_of_thread() { return 1; }

TEST(DeviceThreadAlone, CallsNothingBeforeItsFirstJob) {
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  DeviceThread thread(*driver);
  EXPECT_EQ(fake.calls(nullptr), 0U);
  EXPECT_EQ(thread.run(answer_of_thread, kPatience).value(), 1);
  EXPECT_EQ(fake.calls("cuInit"), 1U);
}

TEST(DeviceThreadAlone, HasTheErrorsOfTheDriver) {
  const Variable version("TENDON_CUDA_DOUBLE_VERSION", "11080");
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  DeviceThread thread(*driver);
  EXPECT_TRUE(
      fails_with(thread.run(answer_of_thread, kPatience), ErrorCode::not_supported, "11.8"));
}

TEST(DeviceThreadAlone, OfTheProcessIsOne) {
  const CudaDouble fake;
  const Variable on("TENDON_CUDA", nullptr);
  const Variable library("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  const int status = run_in_child([] {
    const auto thread = cuda::process_device_thread();
    if (!thread || cuda::process_device_thread().value() != *thread) return 1;
    return (*thread)->run(answer_of_thread, kPatience).has_value() ? 0 : 2;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST_F(OnDeviceThread, DoesJobsInOrderInOneThread) {
  DeviceThread thread(*driver);
  std::vector<int> done;
  std::thread::id where;
  ASSERT_TRUE(succeeds(thread.post([&] {
    where = std::this_thread::get_id();
    done.push_back(1);
  })));
  ASSERT_TRUE(succeeds(thread.post([&] { done.push_back(2); })));
  const auto named = thread.run(
      [&]() -> Result<std::string> {
        std::array<char, 16> name{};
        pthread_getname_np(pthread_self(), name.data(), name.size());
        EXPECT_EQ(std::this_thread::get_id(), where);
        return std::string(name.data());
      },
      kPatience);
  EXPECT_EQ(named.value(), "tendon-cuda");
  EXPECT_EQ(done, (std::vector{1, 2}));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(OnDeviceThread, AnswersTheErrorOfAJob) {
  DeviceThread thread(*driver);
  const auto failed = thread.run(
      []() -> Result<void> {
        return Error{ErrorCode::not_found, "test", "no such thing"};
      },
      kPatience);
  EXPECT_TRUE(fails_with(failed, ErrorCode::not_found, "no such thing"));
}

TEST_F(OnDeviceThread, AJobMayRunAnother) {
  DeviceThread thread(*driver);
  const auto sum = thread.run(
      [&]() -> Result<int> { return thread.run(answer_of_thread, Deadline::now()).value() + 1; },
      kPatience);
  EXPECT_EQ(sum.value(), 2);
}

TEST_F(OnDeviceThread, AJobThatHasNotBegunInTimeNeverDoes) {
  DeviceThread thread(*driver);
  Gate gate;
  ASSERT_TRUE(succeeds(thread.post([&] { gate.pass(); })));
  std::atomic<int> begun = 0;
  const auto late = [&]() -> Result<int> { return ++begun; };
  EXPECT_TRUE(fails_with(thread.run(late, kBriefly), ErrorCode::timeout, "deadline"));
  EXPECT_TRUE(fails_with(thread.run(late, Deadline::now()), ErrorCode::timeout, "deadline"));
  gate.open();
  EXPECT_EQ(thread.run(late, kPatience).value(), 1) << "the others were before it";
}

TEST_F(OnDeviceThread, TheAnswerThatNobodyTakesEndsInTheThread) {
  struct Made {
    explicit Made(std::atomic<std::thread::id>& ended_in) : ended(&ended_in) {}
    Made(Made&& other) noexcept : ended(std::exchange(other.ended, nullptr)) {}
    Made& operator=(Made&&) = delete;
    ~Made() {
      if (ended != nullptr) *ended = std::this_thread::get_id();
    }
    std::atomic<std::thread::id>* ended;
  };
  DeviceThread thread(*driver);
  Gate gate;
  std::atomic<std::thread::id> ended{};
  std::atomic<bool> is_timeout = false;
  std::thread caller([&] {
    // A call that the thread has not begun by its deadline is withdrawn: the next one is tried.
    while (!gate.is_reached) {
      const auto made = thread.run(
          [&]() -> Result<Made> {
            gate.pass();
            return Made(ended);
          },
          kBriefly);
      is_timeout = !made && made.error().code == ErrorCode::timeout;
    }
  });
  caller.join();
  EXPECT_TRUE(is_timeout);
  EXPECT_EQ(ended.load(), std::thread::id());
  gate.open();
  const auto where =
      thread.run([]() -> Result<std::thread::id> { return std::this_thread::get_id(); }, kPatience);
  EXPECT_EQ(ended.load(), where.value());
}

TEST_F(OnDeviceThread, DoesTheJobsThatAreLeftAtItsEnd) {
  int done = 0;
  {
    DeviceThread thread(*driver);
    for (int job = 0; job < 100; ++job) ASSERT_TRUE(succeeds(thread.post([&] { ++done; })));
  }
  EXPECT_EQ(done, 100);
}

TEST_F(OnDeviceThread, TellsOfAnEventWhenItHasCome) {
  HostWord word(api());
  std::atomic<int> told = -1;
  DeviceThread thread(*driver);
  ASSERT_TRUE(succeeds(thread.watch({context, event_behind(word, new_stream()),
                                     [&](Status status) { told = static_cast<int>(status); }})));
  EXPECT_TRUE(eventually([&] { return fake.calls("cuEventQuery") > 3; })) << "it looks again";
  EXPECT_EQ(told, -1);
  word.store(1);
  EXPECT_TRUE(eventually([&] { return told == 0; }));
}

TEST_F(OnDeviceThread, TellsOfEachEventByItself) {
  constexpr int kEvents = 5;
  std::vector<std::unique_ptr<HostWord>> words;
  std::array<std::atomic<bool>, kEvents> told{};
  DeviceThread thread(*driver);
  for (int at = 0; at < kEvents; ++at) {
    words.push_back(std::make_unique<HostWord>(api()));
    ASSERT_TRUE(succeeds(thread.watch({context, event_behind(*words.back(), new_stream()),
                                       [&told, at](Status) { told.at(at) = true; }})));
  }
  for (const int at : {3, 0, 4, 2, 1}) {
    EXPECT_FALSE(told.at(at));
    words[at]->store(1);
    EXPECT_TRUE(eventually([&] { return told.at(at).load(); })) << at;
  }
}

// A job at the end releases its objects through another job.
TEST_F(OnDeviceThread, TakesJobsOfItsOwnAloneWhileItEnds) {
  auto thread = std::make_unique<DeviceThread>(*driver);
  DeviceThread* const ending = thread.get();
  const auto open = std::make_shared<std::atomic<bool>>(false);
  std::atomic<int> own = 0;
  ASSERT_TRUE(succeeds(thread->post([&, open] {
    open->wait(false);
    EXPECT_TRUE(succeeds(ending->post([&] { ++own; })));
  })));
  std::thread other([&] { thread.reset(); });
  EXPECT_TRUE(eventually([&] {
    const auto posted = ending->post([] {});
    return !posted && posted.error().code == ErrorCode::context_closed;
  }));
  *open = true;
  open->notify_all();
  other.join();
  EXPECT_EQ(own, 1);
}

TEST_F(OnDeviceThread, LooksAtNothingWhenNothingIsPending) {
  DeviceThread thread(*driver);
  std::atomic<bool> is_told = false;
  ASSERT_TRUE(succeeds(thread.watch({context, new_event(), [&](Status) { is_told = true; }})));
  EXPECT_TRUE(eventually([&] { return is_told.load(); }));
  const std::uint64_t calls = fake.calls(nullptr);
  for (int turn = 0; turn < 100; ++turn)
    EXPECT_TRUE(succeeds(thread.run(answer_of_thread, kPatience)));
  EXPECT_EQ(fake.calls(nullptr), calls);
}

TEST_F(OnDeviceThread, ManyJobsDoNotKeepEventsWaiting) {
  std::atomic<bool> is_told = false;
  std::function<void()> again;
  DeviceThread thread(*driver);
  again = [&] {
    if (is_told) return;
    EXPECT_TRUE(succeeds(thread.post(again)));
  };
  ASSERT_TRUE(succeeds(thread.post(again)));
  ASSERT_TRUE(succeeds(thread.watch({context, new_event(), [&](Status) { is_told = true; }})));
  EXPECT_TRUE(eventually([&] { return is_told.load(); }));
  is_told = true;
}

TEST_F(OnDeviceThread, TellsOfALostContext) {
  HostWord word(api());
  std::atomic<int> told = -1;
  DeviceThread thread(*driver);
  ASSERT_TRUE(succeeds(thread.watch({context, event_behind(word, new_stream()),
                                     [&](Status status) { told = static_cast<int>(status); }})));
  fake.lose(0, 700);
  EXPECT_TRUE(eventually([&] { return told == 700; }));
}

TEST_F(OnDeviceThread, BreaksNoCapture) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(cuda::CaptureMode::global)), 0);
  std::atomic<int> told = -1;
  DeviceThread thread(*driver);
  ASSERT_TRUE(succeeds(
      thread.watch({context, event, [&](Status status) { told = static_cast<int>(status); }})));
  EXPECT_TRUE(eventually([&] { return told == 0; }));
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 0);
}

TEST_F(OnDeviceThread, TellsOfTheEndOfACapture) {
  const StreamHandle stream = new_stream();
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(cuda::CaptureMode::global)), 0);
  std::atomic<int> told = -1;
  DeviceThread thread(*driver);
  WatchedEvent capture{context, nullptr, [&](Status status) { told = static_cast<int>(status); }};
  capture.captured = stream;
  ASSERT_TRUE(succeeds(thread.watch(std::move(capture))));
  EXPECT_TRUE(eventually([&] { return fake.calls("cuStreamGetCaptureInfo_v2") > 3; }));
  EXPECT_EQ(told, -1);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 0);
  EXPECT_TRUE(eventually([&] { return told == 0; }));
}

TEST_F(OnDeviceThread, LeavesNoContextCurrent) {
  DeviceThread thread(*driver);
  std::atomic<bool> is_told = false;
  ASSERT_TRUE(succeeds(thread.watch({context, new_event(), [&](Status) { is_told = true; }})));
  EXPECT_TRUE(eventually([&] { return is_told.load(); }));
  const auto popped = thread.run(
      [&]() -> Result<Status> {
        ContextHandle current = nullptr;
        return api().context_pop(&current);
      },
      kPatience);
  EXPECT_EQ(popped.value(), Status::invalid_context);
}

TEST_F(OnDeviceThread, AForkedChildCallsNothing) {
  DeviceThread thread(*driver);
  Gate gate;
  ASSERT_TRUE(succeeds(thread.post([&] { gate.pass(); })));
  gate.is_reached.wait(false);
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    const auto answer = thread.run(answer_of_thread, kPatience);
    if (answer || answer.error().code != ErrorCode::forked) return 1;
    if (thread.post([] {}).has_value() || thread.watch({}).has_value()) return 2;
    return fake.calls(nullptr) == before ? 0 : 3;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  gate.open();
  EXPECT_EQ(thread.run(answer_of_thread, kPatience).value(), 1);
}

TEST_F(OnDeviceThread, ServesManyThreads) {
  DeviceThread thread(*driver);
  int sum = 0;  // only the device thread uses it
  std::atomic<int> told = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int turn = 0; turn < 50; ++turn) {
        EXPECT_TRUE(succeeds(thread.run([&]() -> Result<int> { return ++sum; }, kPatience)));
        ASSERT_EQ(api().context_push(context), Status::success);
        EXPECT_TRUE(succeeds(thread.watch({context, new_event(), [&](Status) { ++told; }})));
        EXPECT_EQ(api().context_pop(nullptr), Status::success);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(thread.run([&]() -> Result<int> { return sum; }, kPatience).value(), 200);
  EXPECT_TRUE(eventually([&] { return told == 200; }));
}

}  // namespace
}  // namespace tendon::test
