// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "cuda/gpu.hpp"
#include "support/cuda/gpu.hpp"

namespace tendon::test {

/// A GPU of the double whose streams a test can block.
class GpuWorkFixture : public GpuFixture {
 protected:
  void SetUp() override {
    GpuFixture::SetUp();
    gpu = std::make_shared<cuda::Gpu>(context, *thread);
    memory = create().value();
  }
  void TearDown() override {
    open();
    memory.reset();
    gpu.reset();
    GpuFixture::TearDown();
  }

  [[nodiscard]] cuda::StreamHandle new_stream(
      cuda::StreamFlags flags = cuda::StreamFlags::non_blocking) {
    const cuda::PrimaryContext::Current current(*context);
    cuda::StreamHandle stream = nullptr;
    EXPECT_EQ(context->table().stream_create(&stream, flags), cuda::Status::success);
    return stream;
  }
  [[nodiscard]] static cuda::StreamHandle always(std::uintptr_t number) {
    return reinterpret_cast<cuda::StreamHandle>(number);
  }
  /// Blocks the stream until open(): it does nothing that it gets after this call.
  void block(cuda::StreamHandle stream) {
    const cuda::PrimaryContext::Current current(*context);
    EXPECT_EQ(
        fake.launch(
            stream, [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); }, &open_),
        0);
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }
  void begin_capture(cuda::StreamHandle stream,
                     cuda::CaptureMode mode = cuda::CaptureMode::relaxed) {
    const cuda::PrimaryContext::Current current(*context);
    EXPECT_EQ(fake.begin_capture(stream, static_cast<int>(mode)), 0);
  }
  /// Ends a capture that nothing has broken, and that holds nothing.
  void end_capture(cuda::StreamHandle stream) {
    const cuda::PrimaryContext::Current current(*context);
    std::size_t captured = 1;
    EXPECT_EQ(fake.end_capture(stream, &captured), 0);
    EXPECT_EQ(captured, 0u);
  }
  /// Succeeds once the device thread has called `call` several times more.
  [[nodiscard]] testing::AssertionResult asks_often(const char* call) {
    const std::uint64_t before = fake.calls(call);
    if (eventually([&] { return fake.calls(call) > before + 3; }))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << call << " was called " << fake.calls(call) << " times";
  }
  [[nodiscard]] std::thread::id device_thread() {
    return thread
        ->run([]() -> Result<std::thread::id> { return std::this_thread::get_id(); }, kPatience)
        .value();
  }

  std::shared_ptr<cuda::Gpu> gpu;
  Segment memory;

 private:
  std::atomic<bool> open_ = false;
};

/// An owner that records when it was dropped, and by which thread. Its share may outlive it.
class Owner {
 public:
  [[nodiscard]] std::shared_ptr<const void> share() const {
    return {dropped_.get(), [dropped = dropped_](const void*) {
              dropped->where = std::this_thread::get_id();
              dropped->is_over = true;
            }};
  }
  [[nodiscard]] bool is_dropped() const { return dropped_->is_over; }
  [[nodiscard]] bool is_dropped_eventually() const {
    return eventually([&] { return is_dropped(); });
  }
  [[nodiscard]] std::thread::id where() const { return dropped_->where; }

 private:
  struct Dropped {
    std::atomic<std::thread::id> where{};
    std::atomic<bool> is_over = false;
  };
  const std::shared_ptr<Dropped> dropped_ = std::make_shared<Dropped>();
};

}  // namespace tendon::test
