// SPDX-License-Identifier: Apache-2.0
// Host memory that a stream writes words to, on the double of the driver.
#include "cuda/registered_memory.hpp"

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/stream_work.hpp"
#include "support/cuda/gpu_work.hpp"

namespace tendon::test {
namespace {

using cuda::RegisteredMemory;
using cuda::Status;
using cuda::StreamWork;

class RegisteredMemoryTest : public GpuWorkFixture {
 protected:
  using Word = std::atomic<std::uint64_t>;
  using Words = std::array<Word, 512>;

  [[nodiscard]] Result<std::shared_ptr<RegisteredMemory>> create() {
    return thread->run(
        [this] {
          return RegisteredMemory::create(context, *thread, words,
                                          reinterpret_cast<std::byte*>(words.get()), sizeof(Words));
        },
        kPatience);
  }
  const std::shared_ptr<Words> words = std::make_shared<Words>();
};

TEST_F(RegisteredMemoryTest, AStreamWritesAWordBehindItsCopies) {
  const auto registered = create();
  ASSERT_TRUE(succeeds(registered));
  const cuda::StreamHandle stream = new_stream();
  ASSERT_EQ(fill(memory->address(), 7, 64), Status::success);
  block(stream);
  auto work = StreamWork::begin(gpu, stream, "test").value();
  ASSERT_TRUE(succeeds(work.copy(memory->address() + 4096, memory->address(), 64)));
  ASSERT_TRUE(succeeds(work.write_word((*registered)->address() + 8 * 5, 41)));
  EXPECT_TRUE(fails_with(work.wait(Deadline::now()), ErrorCode::timeout, "cuda:0"));
  EXPECT_EQ((*words)[5].load(), 0u);
  open();
  EXPECT_TRUE(eventually([&] { return (*words)[5].load() == 41; }));
  EXPECT_EQ(byte_at(memory->address() + 4096), 7);
  EXPECT_EQ((*words)[4].load(), 0u);
  EXPECT_EQ((*words)[6].load(), 0u);
}

TEST_F(RegisteredMemoryTest, AWordAloneKeepsMemoryToo) {
  const auto registered = create();
  const cuda::StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  {
    auto work = StreamWork::begin(gpu, stream, "test").value();
    work.keep(owner.share());
    ASSERT_TRUE(succeeds(work.write_word((*registered)->address(), 1)));
  }
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
}

TEST_F(RegisteredMemoryTest, TheDeviceThreadReleasesItAndItsMemory) {
  auto registered = create();
  ASSERT_TRUE(succeeds(registered));
  EXPECT_EQ(words.use_count(), 2);
  registered = Error{ErrorCode::internal, "test", ""};
  settle();
  EXPECT_EQ(fake.calls("cuMemHostUnregister"), 1u);
  EXPECT_EQ(words.use_count(), 1);
}

TEST_F(RegisteredMemoryTest, AnErrorOfTheDriverLeavesNothingRegistered) {
  fake.fail("cuMemHostRegister_v2", static_cast<int>(Status::out_of_memory), 0);
  EXPECT_TRUE(fails_with(create(), ErrorCode::resource_exhausted, "cuMemHostRegister_v2"));
  fake.fail("cuMemHostRegister_v2", 0, 0);
  fake.fail("cuMemHostGetDevicePointer_v2", static_cast<int>(Status::invalid_value), 0);
  EXPECT_TRUE(fails_with(create(), ErrorCode::system, "cuMemHostGetDevicePointer_v2"));
  settle();
  EXPECT_EQ(fake.calls("cuMemHostUnregister"), 1u);
  EXPECT_EQ(words.use_count(), 1);
}

TEST_F(RegisteredMemoryTest, AWordThatTheDriverRefusesIsAnError) {
  auto work = StreamWork::begin(gpu, new_stream(), "test").value();
  EXPECT_TRUE(fails_with(work.write_word(0, 1), ErrorCode::system, "cuStreamWriteValue64_v2"));
}

}  // namespace
}  // namespace tendon::test
