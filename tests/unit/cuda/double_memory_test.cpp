// SPDX-License-Identifier: Apache-2.0
// The rules of memory in the double of the driver.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "core/fd.hpp"
#include "support/child.hpp"
#include "support/cuda/device_fixture.hpp"

namespace tendon::test {
namespace {

using cuda::PointerAttribute;
using v0::detail::OwnedFd;

using DoubleMemory = DeviceFixture;

TEST_F(DoubleMemory, OfTheDeviceIsNoneOfTheHosts) {
  const DeviceAddress address = new_memory(64);
  for (const bool writes : {false, true}) {
    const int status = run_in_child([&] {
      auto* const memory = reinterpret_cast<volatile char*>(address);
      if (writes) *memory = 1;
      return static_cast<int>(*memory);
    });
    EXPECT_TRUE(killed_by(status, SIGSEGV)) << status;
  }
}

TEST_F(DoubleMemory, IsFilledAndCopiedByStreams) {
  const StreamHandle stream = new_stream();
  const DeviceAddress first = new_memory(64);
  const DeviceAddress second = new_memory(64);
  const std::uint64_t value = 0x0123456789abcdef;
  ASSERT_EQ(api().copy_async(first, address_of(&value), sizeof(value), stream), Status::success);
  ASSERT_EQ(api().copy_async(second + 8, first, sizeof(value), stream), Status::success);
  EXPECT_EQ(read(second + 8, stream), value);
  ASSERT_EQ(api().set_bytes_async(second, 0x11, 16, stream), Status::success);
  EXPECT_EQ(read(second + 8, stream), 0x1111111111111111U);
}

TEST_F(DoubleMemory, OutOfRangeIsRefused) {
  const StreamHandle stream = new_stream();
  const DeviceAddress address = new_memory(kSegmentBytes);
  EXPECT_EQ(api().set_bytes_async(address + 1, 0, kSegmentBytes, stream), Status::invalid_value);
  EXPECT_EQ(api().set_bytes_async(address + kSegmentBytes - 1, 0, 1, stream), Status::success);
  EXPECT_EQ(api().memory_free(address + 8), Status::invalid_value);
  EXPECT_EQ(api().memory_free(address), Status::success);
  EXPECT_EQ(api().memory_free(address), Status::invalid_value);
}

TEST_F(DoubleMemory, MappedForReadingIsNotWritten) {
  const MemoryHandle handle = new_handle();
  const DeviceAddress writable = map(handle, AccessFlags::read_write);
  const DeviceAddress readable = map(handle, AccessFlags::read);
  const StreamHandle stream = new_stream();
  ASSERT_EQ(api().set_bytes_async(writable, 0x22, 64, stream), Status::success);
  EXPECT_EQ(read(readable, stream), 0x2222222222222222U);
  EXPECT_EQ(api().set_bytes_async(readable, 0, 64, stream), Status::invalid_value);
  EXPECT_EQ(api().copy_async(readable, writable, 64, stream), Status::invalid_value);
  EXPECT_EQ(api().stream_write_value64(stream, readable, 1, cuda::WriteOrder::fenced),
            Status::invalid_value);
  EXPECT_EQ(api().stream_query(stream), Status::success) << "what was refused lost the context";
}

TEST_F(DoubleMemory, AKernelThatWritesToReadOnlyMemoryLosesTheContext) {
  static const CudaDouble* entries = nullptr;
  static DeviceAddress readable = 0;
  entries = &fake;
  readable = map(new_handle(), AccessFlags::read);
  const StreamHandle stream = new_stream();
  ASSERT_EQ(fake.launch(
                stream, [](void*) { EXPECT_NE(entries->reads(readable, 8), nullptr); }, nullptr),
            0);
  ASSERT_EQ(api().stream_synchronize(stream), Status::success);
  ASSERT_EQ(fake.launch(
                stream, [](void*) { EXPECT_EQ(entries->writes(readable, 8), nullptr); }, nullptr),
            0);
  EXPECT_EQ(api().stream_synchronize(stream), Status::illegal_address);
  EXPECT_EQ(api().stream_query(stream), Status::illegal_address) << "it is sticky";
}

TEST_F(DoubleMemory, WithoutAccessIsRefused) {
  const MemoryHandle handle = new_handle();
  DeviceAddress address = 0;
  ASSERT_EQ(api().address_reserve(&address, kSegmentBytes, 0, 0, 0), Status::success);
  const StreamHandle stream = new_stream();
  EXPECT_EQ(api().set_bytes_async(address, 0, 8, stream), Status::invalid_value) << "not mapped";
  ASSERT_EQ(api().memory_map(address, kSegmentBytes, 0, handle, 0), Status::success);
  EXPECT_EQ(api().set_bytes_async(address, 0, 8, stream), Status::invalid_value) << "no access";
}

TEST_F(DoubleMemory, IsMappedWholeAndOnce) {
  const MemoryHandle handle = new_handle();
  DeviceAddress address = 0;
  ASSERT_EQ(api().address_reserve(&address, 2 * kSegmentBytes, 0, 0, 0), Status::success);
  EXPECT_EQ(api().memory_map(address, 2 * kSegmentBytes, 0, handle, 0), Status::invalid_value);
  EXPECT_EQ(api().memory_map(address, kSegmentBytes / 2, 0, handle, 0), Status::invalid_value);
  EXPECT_EQ(api().memory_map(address, kSegmentBytes, 0, handle + 77, 0), Status::invalid_value);
  ASSERT_EQ(api().memory_map(address, kSegmentBytes, 0, handle, 0), Status::success);
  EXPECT_EQ(api().memory_map(address, kSegmentBytes, 0, handle, 0), Status::invalid_value);
  EXPECT_EQ(api().address_free(address, 2 * kSegmentBytes), Status::invalid_value) << "mapped";
  ASSERT_EQ(api().memory_unmap(address, kSegmentBytes), Status::success);
  EXPECT_EQ(api().memory_unmap(address, kSegmentBytes), Status::invalid_value);
  EXPECT_EQ(api().address_free(address, 2 * kSegmentBytes), Status::success);
}

TEST_F(DoubleMemory, StaysWhileItIsMapped) {
  const MemoryHandle handle = new_handle();
  const DeviceAddress address = map(handle, AccessFlags::read_write);
  ASSERT_EQ(api().memory_release(handle), Status::success);
  EXPECT_EQ(api().memory_release(handle), Status::invalid_value);
  const StreamHandle stream = new_stream();
  ASSERT_EQ(api().set_bytes_async(address, 0x33, 8, stream), Status::success);
  EXPECT_EQ(read(address, stream), 0x3333333333333333U);
}

TEST_F(DoubleMemory, IsOfWholeGranules) {
  const auto properties = on_device();
  std::size_t granule = 0;
  ASSERT_EQ(api().memory_get_granularity(&granule, &properties, cuda::GranularityKind::minimum),
            Status::success);
  EXPECT_EQ(granule, kSegmentBytes);
  MemoryHandle handle = 0;
  EXPECT_EQ(api().memory_create(&handle, granule + 4096, &properties, 0), Status::invalid_value);
  const auto elsewhere = on_device(7);
  EXPECT_EQ(api().memory_create(&handle, granule, &elsewhere, 0), Status::invalid_value);
}

TEST_F(DoubleMemory, IsReachedThroughADescriptor) {
  const MemoryHandle handle = new_handle();
  int passed = -1;
  ASSERT_EQ(api().memory_export(&passed, handle, cuda::HandleType::posix_descriptor, 0),
            Status::success);
  const OwnedFd descriptor(passed);
  EXPECT_NE(fcntl(passed, F_GETFD) & FD_CLOEXEC, 0);
  MemoryHandle imported = 0;
  ASSERT_EQ(api().memory_import(&imported, reinterpret_cast<void*>(std::intptr_t{passed}),
                                cuda::HandleType::posix_descriptor),
            Status::success);
  cuda::AllocationProperties properties{};
  ASSERT_EQ(api().memory_get_properties(&properties, imported), Status::success);
  EXPECT_EQ(properties.location.type, cuda::LocationType::device);
  EXPECT_EQ(properties.location.id, 0);
  const StreamHandle stream = new_stream();
  const DeviceAddress first = map(handle, AccessFlags::read_write);
  const DeviceAddress second = map(imported, AccessFlags::read);
  EXPECT_NE(first, second);
  ASSERT_EQ(api().set_bytes_async(first, 0x44, 8, stream), Status::success);
  EXPECT_EQ(read(second, stream), 0x4444444444444444U);
}

/// A child that uses the double by itself, as a peer does.
TEST_F(DoubleMemory, OutlivesTheProcessThatHasMadeIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  fake.reset();  // the child must be the first to use it
  const int status = run_in_child([&] {
    SetUp();
    const MemoryHandle handle = new_handle();
    const StreamHandle stream = new_stream();
    const DeviceAddress address = map(handle, AccessFlags::read_write);
    int passed = -1;
    api().memory_export(&passed, handle, cuda::HandleType::posix_descriptor, 0);
    api().set_bytes_async(address, 0x55, kSegmentBytes, stream);
    api().stream_synchronize(stream);
    msghdr message{};
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed, sizeof(int));
    return sendmsg(ends[1], &message, 0) == 1 ? 0 : 1;
  });
  ASSERT_TRUE(exited_with(status, 0)) << status;
  msghdr message{};
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  ASSERT_EQ(recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), 1);
  int passed = -1;
  std::memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  const OwnedFd descriptor(passed);
  SetUp();
  MemoryHandle imported = 0;
  ASSERT_EQ(api().memory_import(&imported, reinterpret_cast<void*>(std::intptr_t{passed}),
                                cuda::HandleType::posix_descriptor),
            Status::success);
  EXPECT_EQ(read(map(imported, AccessFlags::read), new_stream()), 0x5555555555555555U);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(DoubleMemory, ADescriptorOfSomethingElseIsNoHandle) {
  const auto import = [&](int descriptor) {
    MemoryHandle handle = 0;
    return api().memory_import(&handle, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                               cuda::HandleType::posix_descriptor);
  };
  const OwnedFd memory(memfd_create("tendon", MFD_CLOEXEC));
  const OwnedFd other(memfd_create("cuda-double", MFD_CLOEXEC));
  const OwnedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const OwnedFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int descriptor : {memory.get(), other.get(), null.get(), connection.get(), -1, 99999})
    EXPECT_EQ(import(descriptor), Status::invalid_value) << descriptor;
  EXPECT_EQ(api().stream_query(new_stream()), Status::success) << "the context is sound";
  const OwnedFd stranger(memfd_create("cuda-double:ffffffffffffffffffffffffffffffff", MFD_CLOEXEC));
  EXPECT_EQ(import(stranger.get()), Status::invalid_device) << "of a device that is not here";
}

TEST_F(DoubleMemory, MayEnd) {
  const Variable bytes("TENDON_CUDA_DOUBLE_MEMORY", "4194304");
  fake.reset();
  SetUp();
  const MemoryHandle first = new_handle();
  const DeviceAddress second = new_memory(1);
  const auto properties = on_device();
  MemoryHandle third = 0;
  EXPECT_EQ(api().memory_create(&third, kSegmentBytes, &properties, 0), Status::out_of_memory);
  ASSERT_EQ(api().memory_free(second), Status::success);
  EXPECT_EQ(api().memory_create(&third, kSegmentBytes, &properties, 0), Status::success);
  ASSERT_EQ(api().memory_release(third), Status::success);
  ASSERT_EQ(api().memory_release(first), Status::success);
}

TEST_F(DoubleMemory, RegisteredHasAnAddressOfItsOwn) {
  std::vector<std::uint64_t> words(1000, 7);
  const std::size_t bytes = words.size() * 8;
  ASSERT_EQ(api().host_register(words.data(), bytes, cuda::kRegisterMapped), Status::success);
  DeviceAddress address = 0;
  ASSERT_EQ(api().host_get_device_address(&address, words.data() + 3, 0), Status::success);
  EXPECT_NE(address, address_of(words.data() + 3));
  EXPECT_EQ(address % 4096, address_of(words.data() + 3) % 4096);
  const StreamHandle stream = new_stream();
  EXPECT_EQ(read(address, stream), 7U);
  ASSERT_EQ(api().stream_write_value64(stream, address, 8, cuda::WriteOrder::fenced),
            Status::success);
  ASSERT_EQ(api().stream_synchronize(stream), Status::success);
  EXPECT_EQ(words[3], 8U);
  EXPECT_EQ(api().stream_write_value64(stream, address_of(&words[3]), 8, cuda::WriteOrder::fenced),
            Status::invalid_value)
      << "an address of the host is none of the device";
  EXPECT_EQ(api().host_register(words.data() + 1, 8, cuda::kRegisterMapped),
            Status::host_memory_already_registered);
  ASSERT_EQ(api().host_unregister(words.data()), Status::success);
  EXPECT_EQ(api().host_unregister(words.data()), Status::host_memory_not_registered);
  EXPECT_EQ(api().set_bytes_async(address, 0, 8, stream), Status::invalid_value);
}

TEST_F(DoubleMemory, AReadOnlyMappingIsRegisteredAsSuch) {
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(api().host_register(mapped, 4096, 0), Status::invalid_value);
  ASSERT_EQ(api().host_register(mapped, 4096, cuda::kRegisterReadOnly), Status::success);
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(4096);
  EXPECT_EQ(api().copy_async(memory, address_of(mapped), 4096, stream), Status::success);
  EXPECT_EQ(api().copy_async(address_of(mapped), memory, 4096, stream), Status::invalid_value);
  ASSERT_EQ(api().host_unregister(mapped), Status::success);
  munmap(mapped, 4096);
  EXPECT_EQ(api().host_register(mapped, 4096, 0), Status::invalid_value) << "nothing is there";
}

TEST_F(DoubleMemory, OfTheHostIsRegisteredInStrictMode) {
  const Variable strict("TENDON_CUDA_DOUBLE_STRICT", "1");
  fake.reset();
  SetUp();
  std::uint64_t value = 5;
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(8);
  EXPECT_EQ(api().copy_async(memory, address_of(&value), 8, stream), Status::invalid_value);
  ASSERT_EQ(api().host_register(&value, 8, 0), Status::success);
  EXPECT_EQ(api().copy_async(memory, address_of(&value), 8, stream), Status::success);
  ASSERT_EQ(api().host_unregister(&value), Status::success);
}

/// Three pages of a memfd, as in a segment of a link.
TEST_F(DoubleMemory, RegisteredIsReadFromThePagesThatItHad) {
  const Variable pins("TENDON_CUDA_DOUBLE_PINS", "1");
  fake.reset();
  SetUp();
  constexpr std::size_t kPages = 3;
  constexpr std::size_t kPage = 4096;
  const OwnedFd file(memfd_create("tendon", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), kPages * kPage), 0);
  void* const mapped =
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memset(mapped, 1, kPages * kPage);
  const Status registered = api().host_register(mapped, kPages * kPage, 0);
  if (registered == Status::not_supported) GTEST_SKIP() << "no pipe may hold pages here";
  ASSERT_EQ(registered, Status::success);
  std::memset(mapped, 2, kPages * kPage);
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(kPages * kPage);
  const auto copied = [&](std::size_t page) {
    EXPECT_EQ(api().copy_async(memory, address_of(mapped), kPages * kPage, stream),
              Status::success);
    return read(memory + page * kPage, stream);
  };
  EXPECT_EQ(copied(1), 0x0202020202020202U) << "what was written since is read";
  ASSERT_EQ(madvise(static_cast<std::byte*>(mapped) + kPage, kPage, MADV_REMOVE), 0);
  std::memset(mapped, 3, kPages * kPage);
  EXPECT_EQ(copied(0), 0x0303030303030303U);
  EXPECT_EQ(copied(1), 0x0202020202020202U) << "the page that was taken away";
  EXPECT_EQ(copied(2), 0x0303030303030303U);
  ASSERT_EQ(api().host_unregister(mapped), Status::success);
  ASSERT_EQ(api().host_register(mapped, kPages * kPage, 0), Status::success);
  EXPECT_EQ(copied(1), 0x0303030303030303U) << "registered anew";
  ASSERT_EQ(api().host_unregister(mapped), Status::success);
  munmap(mapped, kPages * kPage);
}

TEST_F(DoubleMemory, ManyPagesArePinned) {
  const Variable pins("TENDON_CUDA_DOUBLE_PINS", "1");
  fake.reset();
  SetUp();
  std::vector<std::uint64_t> words(200'000);
  for (std::size_t at = 0; at < words.size(); ++at) words[at] = at;
  const Status registered = api().host_register(words.data(), words.size() * 8, 0);
  if (registered == Status::not_supported) GTEST_SKIP() << "no pipe may hold pages here";
  ASSERT_EQ(registered, Status::success);
  const StreamHandle stream = new_stream();
  const DeviceAddress memory = new_memory(words.size() * 8);
  ASSERT_EQ(api().copy_async(memory, address_of(&words[1]), words.size() * 8 - 8, stream),
            Status::success);
  for (const std::size_t at : {1U, 65'000U, 65'024U, 65'025U, 130'048U, 199'999U})
    EXPECT_EQ(read(memory + (at - 1) * 8, stream), at);
  ASSERT_EQ(api().host_unregister(words.data()), Status::success);
}

TEST_F(DoubleMemory, SaysWhatAnAddressIs) {
  const DeviceAddress plain = new_memory(64);
  const DeviceAddress mapped = map(new_handle(), AccessFlags::read_write);
  std::uint64_t word = 0;
  ASSERT_EQ(api().host_register(&word, 8, 0), Status::success);
  struct Attributes {
    void* context = nullptr;
    unsigned type = 9;
    int device = 9;
    unsigned is_managed = 9;
    DeviceAddress begin = 9;
    std::size_t bytes = 9;
  };
  const auto ask = [&](DeviceAddress address) {
    Attributes said;
    std::array attributes = {PointerAttribute::context,        PointerAttribute::memory_type,
                             PointerAttribute::device_ordinal, PointerAttribute::is_managed,
                             PointerAttribute::range_start,    PointerAttribute::range_bytes};
    std::array<void*, 6> values = {&said.context,    &said.type,  &said.device,
                                   &said.is_managed, &said.begin, &said.bytes};
    EXPECT_EQ(api().pointer_get_attributes(6, attributes.data(), values.data(), address),
              Status::success);
    return said;
  };
  EXPECT_EQ(ask(plain).context, context);
  EXPECT_EQ(ask(plain + 8).begin, plain);
  EXPECT_EQ(ask(mapped).context, nullptr);
  EXPECT_EQ(ask(mapped + 8).type, static_cast<unsigned>(cuda::MemoryType::device));
  EXPECT_EQ(ask(mapped).bytes, kSegmentBytes);
  EXPECT_EQ(ask(address_of(&word)).type, static_cast<unsigned>(cuda::MemoryType::host));
  EXPECT_EQ(ask(address_of(this)).type, 0U);
  EXPECT_EQ(ask(address_of(this)).device, -2);
  EXPECT_EQ(ask(plain).is_managed, 0U);
  ASSERT_EQ(api().host_unregister(&word), Status::success);
}

}  // namespace
}  // namespace tendon::test
