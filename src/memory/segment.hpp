// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// The processes that may write to a segment.
enum class Writers : std::uint8_t {
  maker_and_peer,  ///< a link's: maker and the one peer that gets it
  maker_only,      ///< published: any number of readers, none of which can map it to write
};

/// A run of shared memory: a memfd sealed against resizing, mapped by its maker and by the
/// processes that it is passed to. It has no name, so nothing is left of it when all are killed.
///
/// Owns:    the mapping and, until release_fd(), the descriptor.
/// Threads: immutable after it was made.
/// Errors:  system, too_many_open_files, resource_exhausted, also beyond most_passed_mappings() of
///          peers; protocol_violation for a peer's bad descriptor.
/// Blocks:  never.
/// Cost:    a few system calls once; pages exist when first touched.
class Segment {
 public:
  /// Reserves `size_bytes` (rounded up to pages), all zero, not yet touched.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> create(
      std::uint64_t size_bytes, Writers writers = Writers::maker_and_peer);
  /// Maps a descriptor that a peer passed. It must be a writable memfd of ordinary pages, sealed
  /// SHRINK|GROW|SEAL (a peer's ftruncate would be our SIGBUS), of exactly `size_bytes`. On an
  /// error the descriptor stays the caller's, here and below.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> attach(OwnedFd&& fd,
                                                               std::uint64_t size_bytes);
  /// Maps a peer's published segment, read-only: as attach(), but sealed FUTURE_WRITE too, so that
  /// no member of a group can write another's memory, by whichever mistake.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> attach_published(OwnedFd&& fd,
                                                                         std::uint64_t size_bytes);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Drops the descriptor after it was passed on: the mapping alone is enough.
  void release_fd() noexcept { fd_.reset(); }

  /// Makes the pages of [offset, offset + size) exist, so that no later access pays for the first
  /// touch. Callers with a deadline pass pieces of at most 1 MiB and look at the clock between
  /// them.
  [[nodiscard]] Result<void> prefault(std::uint64_t offset, std::uint64_t size_bytes) const;
  /// Returns the whole pages of [offset, offset + size) to the system; they read as zero
  /// afterwards. False: the system has not taken them, and their contents stay. It takes none of a
  /// segment that only its maker may write: the seal that keeps others from writing forbids it.
  /// Memory that the program has locked stays locked, with or without pages.
  [[nodiscard]] bool discard(std::uint64_t offset, std::uint64_t size_bytes) const noexcept;
  /// The bytes of the pages that lie in [offset, offset + size) and are in memory.
  [[nodiscard]] std::uint64_t resident_bytes(std::uint64_t offset,
                                             std::uint64_t size_bytes) const noexcept;

 private:
  Segment(std::byte* data, std::uint64_t size_bytes)
      : data_(data), size_bytes_(size_bytes), process_(process_number()) {}
  [[nodiscard]] static Result<std::shared_ptr<Segment>> map(OwnedFd&& fd, std::uint64_t size_bytes,
                                                            int protection);

  [[nodiscard]] static Result<std::shared_ptr<Segment>> map_passed(OwnedFd&& fd,
                                                                   std::uint64_t size_bytes,
                                                                   int protection);

  OwnedFd fd_;
  std::byte* data_;
  std::uint64_t size_bytes_;
  std::uint32_t process_;
  bool is_passed_ = false;  // by a peer, and counted
};

}  // namespace tendon::v0::detail
