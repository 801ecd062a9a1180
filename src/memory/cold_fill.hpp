// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <utility>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// Fills shared memory that was never touched by having the kernel write to its file: it makes a
/// page and copies into it in one step. A store to such a page is a fault, for which the kernel
/// clears the page first, and takes about twice as long (docs/hand_over.md, "The first message of a
/// size").
///
/// Owns:    a descriptor of the file, which others may close meanwhile.
/// Threads: one at a time, which alone has the memory.
/// Errors:  none; see write().
/// Blocks:  as a copy does: callers with a deadline ask for pieces.
/// Cost:    a system call, and one read of each 64 KiB so that the pages are mapped here too.
class ColdFill {
 public:
  /// Below this size a copy is as fast.
  static constexpr std::uint64_t kLeastBytes = 256 * 1024;

  /// Fills nothing.
  ColdFill() = default;
  /// `memory` begins at byte `begin` of the file.
  ColdFill(OwnedFd file, std::uint64_t begin, MutableBytes memory)
      : file_(std::move(file)), begin_(begin), memory_(memory) {}

  /// Writes `bytes` from byte `offset` of the memory on. False: it did not, or only in part, and
  /// the caller copies them.
  [[nodiscard]] bool write(std::uint64_t offset, Bytes bytes) const noexcept;

 private:
  OwnedFd file_;
  std::uint64_t begin_ = 0;
  MutableBytes memory_;
};

}  // namespace tendon::v0::detail
