// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "memory/passed_mappings.hpp"
#include "support/child.hpp"
#include "support/locked_memory.hpp"

namespace tendon::v0::detail {
namespace {

using test::exited_with;
using test::killed_by;
using test::run_in_child;

constexpr std::uint64_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

OwnedFd memory_file(std::uint64_t size_bytes, int seals, unsigned flags = 0) {
  OwnedFd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) return OwnedFd();
  if (seals != 0 && fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return OwnedFd();
  return fd;
}

OwnedFd copy_of(int fd) { return OwnedFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::size_t resident_pages(const Segment& segment) {
  std::vector<unsigned char> pages(segment.size_bytes() / kPage);
  EXPECT_EQ(mincore(segment.data(), segment.size_bytes(), pages.data()), 0);
  std::size_t count = 0;
  for (const unsigned char page : pages) count += page & 1u;
  return count;
}

void expect_refused(OwnedFd fd, std::uint64_t size_bytes, std::string_view says) {
  const auto result = Segment::attach(std::move(fd), size_bytes);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::protocol_violation) << result.error().message();
  EXPECT_NE(result.error().detail.find(says), std::string::npos) << result.error().detail;
}

TEST(Segment, ThoseOfPeersLeaveMostMappingsToTheProcess) {
  const OwnedFd fd = memory_file(kPage, kSeals);
  ASSERT_TRUE(fd);
  std::vector<std::shared_ptr<Segment>> mapped;
  std::optional<Error> refused;
  while (mapped.size() <= most_passed_mappings()) {
    auto segment = Segment::attach(copy_of(fd.get()), kPage);
    if (!segment.has_value()) {
      refused = segment.error();
      break;
    }
    mapped.push_back(*std::move(segment));
    mapped.back()->release_fd();
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::resource_exhausted);
  EXPECT_NE(refused->detail.find("vm.max_map_count"), std::string::npos);
  EXPECT_EQ(mapped.size(), most_passed_mappings());
  EXPECT_TRUE(Segment::create(kPage).has_value()) << "the process's own are not counted";
  mapped.pop_back();
  auto again = Segment::attach(copy_of(fd.get()), kPage);
  EXPECT_TRUE(again.has_value());
  EXPECT_FALSE(Segment::attach(copy_of(fd.get()), kPage).has_value());
  mapped.clear();
  EXPECT_TRUE(Segment::attach(copy_of(fd.get()), kPage).has_value());
}

TEST(Segment, IsZeroedSealedAndRoundedToPages) {
  const auto segment = Segment::create(kPage + 1).value();
  EXPECT_EQ(segment->size_bytes(), 2 * kPage);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment->data()) % kPage, 0u);
  EXPECT_EQ(resident_pages(*segment), 0u) << "reserving must not touch";
  for (std::uint64_t i = 0; i < segment->size_bytes(); ++i)
    ASSERT_EQ(segment->data()[i], std::byte{0});
  EXPECT_EQ(fcntl(segment->fd(), F_GET_SEALS), kSeals);
  EXPECT_NE(ftruncate(segment->fd(), 0), 0);
  EXPECT_NE(ftruncate(segment->fd(), 1 << 20), 0);
  EXPECT_NE(fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_NE(fcntl(segment->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Segment, RefusesSizesThatCannotBe) {
  for (const std::uint64_t size :
       {std::uint64_t{0}, (std::uint64_t{1} << 47) + 1, std::uint64_t{1} << 63,
        ~std::uint64_t{0} - 4094, ~std::uint64_t{0}}) {
    const auto result = Segment::create(size);
    ASSERT_FALSE(result.has_value()) << size;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().detail.find(std::to_string(size)), std::string::npos)
        << result.error().detail;
  }
  EXPECT_TRUE(Segment::create(1).has_value());
  // Legal, but more than the address space of this process.
  const auto huge = Segment::create(std::uint64_t{1} << 47);
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code, ErrorCode::resource_exhausted) << huge.error().message();
}

TEST(Segment, BothEndsSeeTheSameBytes) {
  const auto mine = Segment::create(3 * kPage).value();
  const auto theirs = Segment::attach(copy_of(mine->fd()), 3 * kPage).value();
  ASSERT_NE(mine->data(), theirs->data());
  std::memcpy(mine->data() + 5000, "hello", 5);
  EXPECT_EQ(std::memcmp(theirs->data() + 5000, "hello", 5), 0);
  theirs->data()[2 * kPage] = std::byte{7};
  EXPECT_EQ(mine->data()[2 * kPage], std::byte{7});
}

TEST(Segment, MappingOutlivesTheDescriptor) {
  auto mine = Segment::create(kPage).value();
  const auto theirs = Segment::attach(copy_of(mine->fd()), kPage).value();
  mine->release_fd();
  EXPECT_EQ(mine->fd(), -1);
  mine->data()[9] = std::byte{9};
  mine.reset();  // as when its process died
  EXPECT_EQ(theirs->data()[9], std::byte{9});
}

TEST(SegmentAttach, RefusesWhatIsNoMemory) {
  expect_refused(OwnedFd(), kPage, "not sealed");
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  expect_refused(OwnedFd(ends[0]), kPage, "not sealed");
  close(ends[1]);
  expect_refused(OwnedFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), kPage, "not sealed");
  expect_refused(OwnedFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), kPage, "not sealed");
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), kPage), 0);
  expect_refused(copy_of(fileno(file)), kPage, "not sealed");
  std::fclose(file);
}

TEST(SegmentAttach, RefusesEverySetOfSealsThatIsTooSmall) {
  for (int seals = 0; seals < 8; ++seals) {
    if (seals == kSeals) continue;
    OwnedFd fd = memory_file(kPage, seals);
    ASSERT_TRUE(fd) << seals;
    expect_refused(std::move(fd), kPage, "not sealed");
  }
  OwnedFd never(memfd_create("hostile", MFD_CLOEXEC));  // it cannot be sealed at all
  ASSERT_EQ(ftruncate(never.get(), kPage), 0);
  expect_refused(std::move(never), kPage, "not sealed");
}

TEST(SegmentAttach, RefusesAnotherSizeThanAnnounced) {
  for (const std::uint64_t announced : {std::uint64_t{0}, std::uint64_t{1}, kPage - 1, kPage + 1,
                                        2 * kPage, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    expect_refused(memory_file(kPage, kSeals), announced, std::to_string(announced));
  }
  expect_refused(memory_file(0, kSeals), 0, "0 bytes");
  EXPECT_TRUE(Segment::attach(memory_file(kPage, kSeals), kPage).has_value());
}

TEST(SegmentAttach, RefusesWhatCannotBeWritten) {
  expect_refused(memory_file(kPage, kSeals | F_SEAL_WRITE), kPage, "not plain memory");
  expect_refused(memory_file(kPage, kSeals | F_SEAL_FUTURE_WRITE), kPage, "not plain memory");
  const OwnedFd writable = memory_file(kPage, kSeals);
  const std::string path = "/proc/self/fd/" + std::to_string(writable.get());
  OwnedFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  expect_refused(std::move(read_only), kPage, "not plain memory");
}

// The kernel reports this with SIGXFSZ.
TEST(Segment, BeyondTheLimitOfFileSizesIsAnErrorAndNoSignal) {
  EXPECT_TRUE(exited_with(0, run_in_child([] {
                            const rlimit limit{16 * kPage, 16 * kPage};
                            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
                            if (!Segment::create(16 * kPage)) return 2;
                            const auto refused = Segment::create(16 * kPage + 1);
                            if (refused || refused.error().code != ErrorCode::resource_exhausted)
                              return 3;
                            return refused.error().detail.find("RLIMIT_FSIZE") == std::string::npos
                                       ? 4
                                       : 0;
                          })));
}

// A huge page may be missing at the first touch, which is SIGBUS.
TEST(SegmentAttach, RefusesHugePages) {
  constexpr std::uint64_t kHugePage = 2ull << 20;
  OwnedFd fd = memory_file(kHugePage, kSeals, MFD_HUGETLB);
  if (!fd) GTEST_SKIP() << "this kernel makes no huge pages";
  expect_refused(std::move(fd), kHugePage, "not plain memory");
}

TEST(SegmentAttach, ClosesWhatItRefuses) {
  OwnedFd fd = memory_file(kPage, 0);
  const int number = fd.get();
  expect_refused(std::move(fd), kPage, "not sealed");
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

TEST(Segment, PrefaultMakesPagesOnceAndKeepsBytes) {
  const auto segment = Segment::create(16 * kPage).value();
  segment->data()[5 * kPage] = std::byte{5};
  ASSERT_TRUE(segment->prefault(4 * kPage, 4 * kPage).has_value());
  EXPECT_EQ(resident_pages(*segment), 4u);
  EXPECT_EQ(segment->data()[5 * kPage], std::byte{5});
  ASSERT_TRUE(segment->prefault(kPage + 1, 1).has_value()) << "part of a page is a page";
  EXPECT_EQ(resident_pages(*segment), 5u);
}

TEST(Segment, DiscardGivesWholePagesBack) {
  const auto segment = Segment::create(16 * kPage).value();
  std::memset(segment->data(), 1, segment->size_bytes());
  ASSERT_EQ(resident_pages(*segment), 16u);
  EXPECT_TRUE(
      segment->discard(4 * kPage - 1, 4 * kPage + 2));  // only the four pages between are whole
  EXPECT_EQ(resident_pages(*segment), 12u);
  EXPECT_EQ(segment->data()[4 * kPage - 1], std::byte{1});
  EXPECT_EQ(segment->data()[4 * kPage], std::byte{0});
  EXPECT_EQ(segment->data()[8 * kPage - 1], std::byte{0});
  EXPECT_EQ(segment->data()[8 * kPage], std::byte{1});
  EXPECT_TRUE(segment->discard(1, kPage - 2));
  EXPECT_EQ(segment->data()[1], std::byte{1});
}

TEST(Segment, WhatItsMakerAloneMayWriteIsNotGivenBack) {
  const auto segment = Segment::create(4 * kPage, Writers::maker_only).value();
  std::memset(segment->data(), 1, segment->size_bytes());
  const bool given_back = segment->discard(0, 4 * kPage);
  EXPECT_EQ(resident_pages(*segment), given_back ? 0u : 4u) << "what it says is so";
  EXPECT_EQ(segment->data()[0], given_back ? std::byte{0} : std::byte{1});
}

// mlockall() of the program locks segments too, and MADV_REMOVE fails on locked memory.
TEST(Segment, DiscardOfLockedMemoryLeavesItLocked) {
  const auto segment = Segment::create(8 * kPage).value();
  std::memset(segment->data(), 1, segment->size_bytes());
  if (!test::lock_memory(segment->data(), segment->size_bytes()))
    GTEST_SKIP() << "no memory can be locked";
  EXPECT_TRUE(segment->discard(2 * kPage, 4 * kPage));
  EXPECT_EQ(resident_pages(*segment), 4u);
  EXPECT_EQ(segment->data()[2 * kPage], std::byte{0});
  EXPECT_EQ(segment->data()[6 * kPage], std::byte{1});
  // The kernel refuses to unmap locked memory.
  for (std::uint64_t page = 0; page < 8; ++page)
    EXPECT_EQ(madvise(segment->data() + page * kPage, kPage, MADV_DONTNEED), -1) << page;
}

TEST(Segment, ARefusedDiscardLocksNothing) {
  const auto segment = Segment::create(kPage, Writers::maker_only).value();
  segment->data()[0] = std::byte{1};
  EXPECT_FALSE(segment->discard(0, kPage));
  EXPECT_EQ(madvise(segment->data(), kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(segment->data()[0], std::byte{1});
}

TEST(SegmentFork, TouchingInAChildIsAFault) {
  const auto made = Segment::create(kPage).value();
  const auto attached = Segment::attach(copy_of(made->fd()), kPage).value();
  made->data()[0] = std::byte{1};
  for (const auto& segment : {made, attached}) {
    EXPECT_TRUE(
        killed_by(run_in_child([&] { return std::to_integer<int>(segment->data()[0]); }), SIGSEGV));
    EXPECT_TRUE(killed_by(run_in_child([&] {
                            segment->data()[0] = std::byte{99};
                            return 0;
                          }),
                          SIGSEGV));
  }
  EXPECT_EQ(made->data()[0], std::byte{1});
}

TEST(SegmentFork, DescriptorIsClosedInAChild) {
  const auto segment = Segment::create(kPage).value();
  const int status = run_in_child([&] { return fcntl(segment->fd(), F_GETFD) == -1 ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0));
}

// In the child the addresses and the number may belong to another object: the destructor must leave
// both alone.
TEST(SegmentFork, DestroyingInAChildTouchesNothing) {
  auto segment = Segment::create(4 * kPage).value();
  const int number = segment->fd();
  const int status = run_in_child([&] {
    void* const place = segment->data();
    void* mine = mmap(place, 4 * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mine != place) return 1;
    if (dup2(STDERR_FILENO, number) != number) return 2;
    segment.reset();
    static_cast<volatile char*>(mine)[kPage] = 3;  // SIGSEGV if it was unmapped
    return fcntl(number, F_GETFD) == -1 ? 3 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  segment->data()[0] = std::byte{1};
}

// Returns whether this process has a segment mapped with access. It is async-signal-safe, so that a
// child of a process with threads may call it.
bool maps_a_segment() {
  static std::array<char, 1 << 20> text;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  std::size_t size = 0;
  for (ssize_t got = 0;
       (got = TEMP_FAILURE_RETRY(read(fd, text.data() + size, text.size() - size))) > 0;)
    size += static_cast<std::size_t>(got);
  close(fd);
  if (size == text.size()) _exit(99);  // the text did not fit
  std::string_view rest(text.data(), size);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find("memfd:tendon") == std::string_view::npos) continue;
    const std::string_view access = line.substr(line.find(' ') + 1, 2);
    if (access != "--") return true;
  }
  return false;
}

TEST(SegmentFork, NoAccessWheneverAnotherThreadForks) {
  const auto kept = Segment::create(kPage).value();
  ASSERT_TRUE(maps_a_segment()) << "the check itself finds nothing";
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> made{0};
  std::thread maker([&] {
    while (!done.load(std::memory_order_relaxed)) {
      auto segment = Segment::create(kPage).value();
      segment->data()[0] = std::byte{1};
      ++made;
    }
  });
  while (made == 0) std::this_thread::yield();
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    if (!exited_with(run_in_child([] { return maps_a_segment() ? 1 : 0; }), 0)) ++wrong;
  }
  done = true;
  maker.join();
  EXPECT_EQ(wrong, 0) << "of 200 forks";
}

}  // namespace
}  // namespace tendon::v0::detail
