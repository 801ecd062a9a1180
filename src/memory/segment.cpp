// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "core/file_limit.hpp"
#include "memory/mapped_ranges.hpp"
#include "memory/passed_mappings.hpp"

namespace tendon::v0::detail {
namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kWriteSeals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLargestBytes = 1ull << 47;  // the most that a process can address
constexpr std::uint64_t kTmpfs = 0x01021994;         // TMPFS_MAGIC of linux/magic.h

// Ordinary pages only: the kernel may refuse a huge page at the first touch, with SIGBUS.
bool is_plain_memory(int fd) {
  struct statfs status = {};
  return fstatfs(fd, &status) == 0 && static_cast<std::uint64_t>(status.f_type) == kTmpfs;
}

// Memory that the program has locked, by mlockall() for example, is not unmapped (EINVAL). So it is
// unlocked for a moment. It is locked again without pages: an existing one is locked, a new one
// will be.
bool discard_locked(void* memory, std::uint64_t size_bytes) noexcept {
  const bool is_locked = madvise(memory, size_bytes, MADV_DONTNEED) != 0 && errno == EINVAL;
  // Checks, before anything changes, that the program may still lock.
  if (!is_locked || mlock2(memory, size_bytes, MLOCK_ONFAULT) != 0) return false;
  const bool removed =
      munlock(memory, size_bytes) == 0 && madvise(memory, size_bytes, MADV_REMOVE) == 0;
  (void)mlock2(memory, size_bytes, MLOCK_ONFAULT);
  return removed;
}

// Checks every descriptor that a peer passed, whichever process may write to it.
Result<void> check_passed(int fd, int seals, std::uint64_t size_bytes) {
  struct stat status = {};
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &status) != 0) {
    return Error{ErrorCode::protocol_violation, "segment.attach",
                 "a segment passed by the peer is not sealed against resizing (seals " +
                     std::to_string(seals) + ", needed " + std::to_string(kSeals) + ")"};
  }
  if (static_cast<std::uint64_t>(status.st_size) != size_bytes || size_bytes == 0) {
    return Error{ErrorCode::protocol_violation, "segment.attach",
                 "a segment passed by the peer has " + std::to_string(status.st_size) +
                     " bytes, announced were " + std::to_string(size_bytes)};
  }
  return {};
}
}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(std::uint64_t size_bytes, Writers writers) {
  if (size_bytes == 0 || size_bytes > kLargestBytes) {
    return Error{ErrorCode::invalid_argument, "segment.create",
                 "a segment of " + std::to_string(size_bytes) + " bytes: 1 to " +
                     std::to_string(kLargestBytes) + " are legal"};
  }
  const std::uint64_t size = (size_bytes + kPage - 1) / kPage * kPage;
  TENDON_CHECK(check_file_size(size, ErrorCode::resource_exhausted, "segment.create",
                               "a segment of shared memory"));
  OwnedFd fd(memfd_create("tendon", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error("segment.create", "memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
    return system_error("segment.create", "ftruncate to " + std::to_string(size) + " bytes", errno);
  // FUTURE_WRITE spares an existing mapping: the maker's.
  const int descriptor = fd.get();
  TENDON_TRY(segment, map(std::move(fd), size, PROT_READ | PROT_WRITE));
  const int seals = writers == Writers::maker_only ? kSeals | F_SEAL_FUTURE_WRITE : kSeals;
  if (fcntl(descriptor, F_ADD_SEALS, seals) != 0)
    return system_error("segment.create", "sealing a memfd", errno);
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::attach(OwnedFd&& fd, std::uint64_t size_bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  const int mode = fcntl(fd.get(), F_GETFL);
  TENDON_CHECK(check_passed(fd.get(), seals, size_bytes));
  if (mode < 0 || (mode & O_ACCMODE) != O_RDWR || (seals & kWriteSeals) != 0 ||
      !is_plain_memory(fd.get())) {
    return Error{
        ErrorCode::protocol_violation, "segment.attach",
        "a segment passed by the peer is not plain memory that both may write (open mode " +
            std::to_string(mode & O_ACCMODE) + ", seals " + std::to_string(seals) + ")"};
  }
  return map_passed(std::move(fd), size_bytes, PROT_READ | PROT_WRITE);
}

Result<std::shared_ptr<Segment>> Segment::attach_published(OwnedFd&& fd, std::uint64_t size_bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  TENDON_CHECK(check_passed(fd.get(), seals, size_bytes));
  if ((seals & kWriteSeals) != F_SEAL_FUTURE_WRITE || !is_plain_memory(fd.get())) {
    return Error{ErrorCode::protocol_violation, "segment.attach",
                 "a segment published by the peer is not plain memory that its maker alone may "
                 "write (seals " +
                     std::to_string(seals) + ")"};
  }
  return map_passed(std::move(fd), size_bytes, PROT_READ);
}

Result<std::shared_ptr<Segment>> Segment::map_passed(OwnedFd&& fd, std::uint64_t size_bytes,
                                                     int protection) {
  TENDON_CHECK(add_passed_mapping());
  auto segment = map(std::move(fd), size_bytes, protection);
  if (segment)
    (*segment)->is_passed_ = true;
  else
    drop_passed_mapping();
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::map(OwnedFd&& fd, std::uint64_t size_bytes,
                                              int protection) {
  // First without access, then DONTFORK, then access: a fork in another thread at any moment leaves
  // the child either no pages or no mapping, never writable slots.
  void* memory = mmap(nullptr, size_bytes, PROT_NONE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED)
    return system_error("segment.map", "mmap of " + std::to_string(size_bytes) + " bytes", errno);
  std::shared_ptr<Segment> segment(new Segment(static_cast<std::byte*>(memory), size_bytes));
  if (madvise(memory, size_bytes, MADV_DONTFORK) != 0)
    return system_error("segment.map", "madvise(MADV_DONTFORK)", errno);
  // A core file must not hold messages of peers. Not every kernel configuration allows it, and it
  // is no promise.
  madvise(memory, size_bytes, MADV_DONTDUMP);
  if (mprotect(memory, size_bytes, protection) != 0)
    return system_error("segment.map", "mprotect", errno);
  segment->fd_ = std::move(fd);
  note_mapped(memory, size_bytes);
  return segment;
}

Segment::~Segment() {
  // In a forked child the mapping is not there (DONTFORK), and its addresses may belong to another
  // one by now.
  if (process_ != process_number()) return;
  note_unmapped(data_);
  munmap(data_, size_bytes_);
  if (is_passed_) drop_passed_mapping();
}

Result<void> Segment::prefault(std::uint64_t offset, std::uint64_t size_bytes) const {
  const std::uint64_t begin = offset / kPage * kPage;
  const std::uint64_t end = offset + size_bytes;
  if (madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    return system_error("segment.prefault", "madvise(MADV_POPULATE_WRITE)", errno);
  return {};
}

// Neither MADV_REMOVE nor FALLOC_FL_PUNCH_HOLE is allowed under F_SEAL_FUTURE_WRITE, by whichever
// descriptor; MADV_DONTNEED unmaps the pages and leaves them in the file.
bool Segment::discard(std::uint64_t offset, std::uint64_t size_bytes) const noexcept {
  const std::uint64_t begin = (offset + kPage - 1) / kPage * kPage;
  const std::uint64_t end = (offset + size_bytes) / kPage * kPage;
  return begin >= end || madvise(data_ + begin, end - begin, MADV_REMOVE) == 0 ||
         (errno == EINVAL && discard_locked(data_ + begin, end - begin));
}

std::uint64_t Segment::resident_bytes(std::uint64_t offset,
                                      std::uint64_t size_bytes) const noexcept {
  std::array<unsigned char, 512> pages{};
  const std::uint64_t end = (offset + size_bytes) / kPage * kPage;
  std::uint64_t count = 0;
  for (std::uint64_t at = (offset + kPage - 1) / kPage * kPage; at < end;) {
    const std::uint64_t piece = std::min<std::uint64_t>(end - at, pages.size() * kPage);
    if (mincore(data_ + at, piece, pages.data()) == 0)
      count += std::count_if(pages.begin(), pages.begin() + piece / kPage,
                             [](unsigned char page) { return (page & 1) != 0; });
    at += piece;
  }
  return count * kPage;
}

}  // namespace tendon::v0::detail
