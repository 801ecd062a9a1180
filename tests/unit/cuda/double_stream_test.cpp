// SPDX-License-Identifier: Apache-2.0
// The rules of streams and events in the double of the driver.
#include <atomic>
#include <thread>

#include "support/cuda/device_fixture.hpp"

namespace tendon::test {
namespace {

using cuda::StreamFlags;
using cuda::WaitCondition;
using cuda::WriteOrder;

/// Tests that decide by a word when the work of a stream is done.
class DoubleStream : public DeviceFixture {
 protected:
  /// Blocks the work of the stream until the word is written.
  void hold(StreamHandle stream, const HostWord& word, std::uint64_t value = 1) {
    ASSERT_EQ(api().stream_wait_value64(stream, word.address(), value, WaitCondition::at_least),
              Status::success);
  }
  void write(StreamHandle stream, const HostWord& word, std::uint64_t value) {
    ASSERT_EQ(api().stream_write_value64(stream, word.address(), value, WriteOrder::fenced),
              Status::success);
  }
};

TEST_F(DoubleStream, RunsLaterInOrder) {
  HostWord gate(api());
  HostWord end(api());
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(8);
  hold(stream, gate);
  ASSERT_EQ(api().set_bytes_async(memory, 1, 8, stream), Status::success);
  ASSERT_EQ(api().set_bytes_async(memory, 2, 8, stream), Status::success);
  write(stream, end, 7);
  EXPECT_EQ(api().stream_query(stream), Status::not_ready);
  EXPECT_EQ(end.load(), 0U);
  EXPECT_EQ(read(memory, new_stream()), 0U) << "another stream goes on";
  gate.store(1);
  EXPECT_TRUE(eventually([&] { return end.load() == 7; }));
  EXPECT_EQ(read(memory, stream), 0x0202020202020202U);
  EXPECT_EQ(api().stream_query(stream), Status::success);
}

TEST_F(DoubleStream, HesitatesAsASeedSays) {
  const Variable seed("TENDON_CUDA_DOUBLE_SEED", "42");
  fake.reset();
  SetUp();
  const StreamHandle first = new_stream();
  const StreamHandle second = new_stream();
  const DeviceAddress memory = new_memory(8 * 100);
  const EventHandle event = new_event();
  for (unsigned turn = 0; turn < 50; ++turn) {
    const auto byte = static_cast<unsigned char>(turn);
    ASSERT_EQ(api().set_bytes_async(memory, byte, 800, first), Status::success);
    ASSERT_EQ(api().event_record(event, first), Status::success);
    ASSERT_EQ(api().stream_wait_event(second, event, 0), Status::success);
    EXPECT_EQ(read(memory + 8 * turn, second), byte * 0x0101010101010101U);
  }
}

TEST_F(DoubleStream, WaitsForAnEventOfAnother) {
  HostWord gate(api());
  HostWord end(api());
  const StreamHandle first = new_stream();
  const StreamHandle second = new_stream();
  const EventHandle event = new_event();
  EXPECT_EQ(api().event_query(event), Status::success) << "never recorded";
  hold(first, gate);
  ASSERT_EQ(api().event_record(event, first), Status::success);
  ASSERT_EQ(api().stream_wait_event(second, event, 0), Status::success);
  write(second, end, 1);
  EXPECT_EQ(api().event_query(event), Status::not_ready);
  EXPECT_EQ(api().stream_query(second), Status::not_ready);
  EXPECT_EQ(end.load(), 0U);
  ASSERT_EQ(api().event_destroy(event), Status::success) << "its work is waited for all the same";
  EXPECT_EQ(api().event_query(event), Status::invalid_handle);
  gate.store(1);
  EXPECT_EQ(api().stream_synchronize(second), Status::success);
  EXPECT_EQ(end.load(), 1U);
}

TEST_F(DoubleStream, AnEventIsOfItsLastRecord) {
  HostWord gate(api());
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(api().event_record(event, stream), Status::success);
  ASSERT_EQ(api().stream_synchronize(stream), Status::success);
  EXPECT_EQ(api().event_query(event), Status::success);
  hold(stream, gate);
  ASSERT_EQ(api().event_record(event, stream), Status::success);
  EXPECT_EQ(api().event_query(event), Status::not_ready);
  gate.store(1);
  EXPECT_TRUE(eventually([&] { return api().event_query(event) == Status::success; }));
}

TEST_F(DoubleStream, WordsAreComparedAsTheyAreAsked) {
  HostWord word(api());
  const StreamHandle stream = new_stream();
  word.store(9);
  hold(stream, word, 8);
  EXPECT_EQ(api().stream_synchronize(stream), Status::success);
  ASSERT_EQ(api().stream_wait_value64(stream, word.address(), 8, WaitCondition::equal),
            Status::success);
  EXPECT_EQ(api().stream_query(stream), Status::not_ready);
  word.store(8);
  EXPECT_EQ(api().stream_synchronize(stream), Status::success);
  EXPECT_EQ(api().stream_wait_value64(stream, word.address() + 4, 8, WaitCondition::equal),
            Status::invalid_value)
      << "not aligned";
}

TEST_F(DoubleStream, AFullQueueBlocks) {
  HostWord gate(api());
  const StreamHandle stream = new_stream();
  hold(stream, gate);
  for (std::size_t count = 1; count < 1024; ++count)
    ASSERT_EQ(fake.launch(
                  stream, [](void*) {}, nullptr),
              0);
  EXPECT_EQ(fake.pending(0), 1024U);
  const DeviceAddress memory = new_memory(8);
  std::thread one_more([&] {
    EXPECT_EQ(api().set_bytes_async(memory, 0, 8, stream), Status::success);
    EXPECT_EQ(gate.load(), 1U) << "it did not wait for a place";
  });
  EXPECT_TRUE(eventually([&] { return fake.calls("cuMemsetD8Async") == 1; }));
  EXPECT_EQ(fake.pending(0), 1024U);
  gate.store(1);
  one_more.join();
  EXPECT_EQ(api().stream_synchronize(stream), Status::success);
  EXPECT_EQ(fake.pending(0), 0U);
}

TEST_F(DoubleStream, TheNinthSharesAQueueWithTheFirst) {
  HostWord gate(api());
  const StreamHandle first = new_stream();
  for (int others = 0; others < 7; ++others) new_stream();
  const StreamHandle ninth = new_stream();
  hold(first, gate);
  for (std::size_t count = 1; count < 1023; ++count)
    ASSERT_EQ(fake.launch(
                  first, [](void*) {}, nullptr),
              0);
  ASSERT_EQ(fake.launch(
                ninth, [](void*) {}, nullptr),
            0)
      << "the last place but one";
  EXPECT_EQ(api().stream_synchronize(ninth), Status::success) << "its place is free again";
  ASSERT_EQ(fake.launch(
                first, [](void*) {}, nullptr),
            0);
  const DeviceAddress memory = new_memory(8);
  std::thread one_more([&] {
    EXPECT_EQ(api().set_bytes_async(memory, 0, 8, ninth), Status::success);
    EXPECT_EQ(gate.load(), 1U) << "it did not wait for a place";
  });
  EXPECT_TRUE(eventually([&] { return fake.calls("cuMemsetD8Async") == 1; }));
  EXPECT_EQ(fake.pending(0), 1024U);
  gate.store(1);
  one_more.join();
}

TEST_F(DoubleStream, OfOneQueueWaitForEachOtherWhenAsked) {
  const Variable in_order("TENDON_CUDA_DOUBLE_IN_ORDER", "1");
  fake.reset();
  SetUp();
  HostWord gate(api());
  const StreamHandle first = new_stream();
  const StreamHandle second = new_stream();
  for (int others = 0; others < 6; ++others) new_stream();
  const StreamHandle ninth = new_stream();
  hold(first, gate);
  ASSERT_EQ(fake.launch(
                second, [](void*) {}, nullptr),
            0);
  ASSERT_EQ(fake.launch(
                ninth, [](void*) {}, nullptr),
            0);
  EXPECT_EQ(api().stream_synchronize(second), Status::success);
  EXPECT_EQ(api().stream_query(ninth), Status::not_ready);
  gate.store(1);
  EXPECT_EQ(api().stream_synchronize(ninth), Status::success);
}

TEST_F(DoubleStream, ReleasingCallsWaitForAll) {
  HostWord gate(api());
  std::uint64_t registered = 0;
  ASSERT_EQ(api().host_register(&registered, 8, 0), Status::success);
  const DeviceAddress plain = new_memory(8);
  const DeviceAddress mapped = map(new_handle(), AccessFlags::read_write);
  const StreamHandle stream = new_stream();
  hold(stream, gate);
  ASSERT_EQ(api().stream_destroy(stream), Status::success) << "its work goes on";
  std::atomic<int> released = 0;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    EXPECT_EQ(api().memory_free(plain), Status::success);
    ++released;
  });
  threads.emplace_back([&] {
    EXPECT_EQ(api().memory_unmap(mapped, kSegmentBytes), Status::success);
    ++released;
  });
  threads.emplace_back([&] {
    EXPECT_EQ(api().host_unregister(&registered), Status::success);
    ++released;
  });
  // Each function has been called. More cannot be seen of a call that does not return.
  EXPECT_TRUE(eventually([&] {
    return fake.calls("cuMemFree_v2") == 1 && fake.calls("cuMemUnmap") == 1 &&
           fake.calls("cuMemHostUnregister") == 1;
  }));
  EXPECT_EQ(released, 0);
  gate.store(1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(released, 3);
}

TEST_F(DoubleStream, TheLegacyDefaultWaitsForBlockingOnes) {
  HostWord gate(api());
  const StreamHandle blocking = new_stream(StreamFlags::blocking);
  const StreamHandle apart = new_stream();
  hold(blocking, gate);
  ASSERT_EQ(fake.launch(
                nullptr, [](void*) {}, nullptr),
            0);
  ASSERT_EQ(fake.launch(
                apart, [](void*) {}, nullptr),
            0);
  EXPECT_EQ(api().stream_synchronize(apart), Status::success);
  EXPECT_EQ(api().stream_query(nullptr), Status::not_ready);
  gate.store(1);
  EXPECT_EQ(api().stream_synchronize(nullptr), Status::success);
}

TEST_F(DoubleStream, EachThreadHasADefaultOfItsOwn) {
  const auto mine = reinterpret_cast<StreamHandle>(cuda::kPerThreadStream);
  HostWord gate(api());
  hold(mine, gate);
  std::thread other([&] {
    EXPECT_EQ(api().stream_query(mine), Status::invalid_context) << "none is current here";
    ASSERT_EQ(api().context_push(context), Status::success);
    EXPECT_EQ(api().stream_query(mine), Status::success);
    ContextHandle of_stream = nullptr;
    EXPECT_EQ(api().stream_get_context(mine, &of_stream), Status::success);
    EXPECT_EQ(of_stream, context);
  });
  other.join();
  EXPECT_EQ(api().stream_query(mine), Status::not_ready);
  gate.store(1);
  EXPECT_EQ(api().stream_synchronize(mine), Status::success);
}

TEST_F(DoubleStream, ACopyToTheHostIsDoneAtTheReturn) {
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(8);
  ASSERT_EQ(api().set_bytes_async(memory, 6, 8, stream), Status::success);
  std::uint64_t value = 0;
  ASSERT_EQ(api().copy_async(address_of(&value), memory, 8, stream), Status::success);
  EXPECT_EQ(value, 0x0606060606060606U);
}

TEST_F(DoubleStream, CopiesOfABatchAreMadeTogether) {
  const StreamHandle stream = new_stream();
  std::array<std::uint64_t, 2> values = {1, 2};
  const DeviceAddress memory = new_memory(16);
  std::array<DeviceAddress, 2> to = {memory + 8, memory};
  std::array<DeviceAddress, 2> from = {address_of(&values[0]), address_of(&values[1])};
  std::array<std::size_t, 2> sizes = {8, 8};
  cuda::CopyAttributes attributes{};
  attributes.source_order = cuda::SourceOrder::stream;
  std::size_t first = 0;
  std::size_t failed = 0;
  const auto copy = [&] {
    return api().copy_batch_async(to.data(), from.data(), sizes.data(), 2, &attributes, &first, 1,
                                  &failed, stream);
  };
  ASSERT_EQ(copy(), Status::success);
  EXPECT_EQ(read(memory, stream), 2U);
  EXPECT_EQ(read(memory + 8, stream), 1U);
  to[1] = memory + kSegmentBytes - 4;
  EXPECT_EQ(copy(), Status::invalid_value);
  EXPECT_EQ(failed, 1U);
}

TEST_F(DoubleStream, AKernelGetsItsParametersAsTheyWere) {
  static std::atomic<std::uint64_t> sum = 0;
  const std::array<std::size_t, 2> sizes = {8, 4};
  fake.kernel(
      "add",
      [](void* const* parameters) {
        std::uint64_t first = 0;
        std::uint32_t second = 0;
        std::memcpy(&first, parameters[0], 8);
        std::memcpy(&second, parameters[1], 4);
        sum = first + second;
      },
      sizes.data(), sizes.size());
  cuda::ModuleHandle module_handle = nullptr;
  EXPECT_EQ(api().module_load(&module_handle, "no PTX"), Status::invalid_image);
  ASSERT_EQ(api().module_load(&module_handle, ".version 8.0\n.visible .entry add(.param .u64 a)"),
            Status::success);
  cuda::FunctionHandle function = nullptr;
  EXPECT_EQ(api().module_get_function(&function, module_handle, "subtract"), Status::not_found);
  ASSERT_EQ(api().module_get_function(&function, module_handle, "add"), Status::success);
  HostWord gate(api());
  const StreamHandle stream = new_stream();
  hold(stream, gate);
  std::uint64_t first = 40;
  std::uint32_t second = 2;
  std::array<void*, 2> parameters = {&first, &second};
  ASSERT_EQ(api().launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.data(), nullptr),
            Status::success);
  first = second = 0;
  gate.store(1);
  ASSERT_EQ(api().stream_synchronize(stream), Status::success);
  EXPECT_EQ(sum, 42U);
  EXPECT_EQ(api().launch_kernel(function, 0, 1, 1, 32, 1, 1, 0, stream, parameters.data(), nullptr),
            Status::invalid_value);
}

}  // namespace
}  // namespace tendon::test
