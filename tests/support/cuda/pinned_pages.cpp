// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/pinned_pages.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "support/cuda/memory.hpp"

namespace tendon::cuda_double {
namespace {

// A pipe has one place for each page, whether it holds all or a part of it.
constexpr std::size_t kPlaces = 128;
constexpr std::size_t kBytesOfPipe = (kPlaces - 1) * kPage;

void close_ends(const std::array<int, 2>& ends) {
  for (const int end : ends)
    if (end >= 0) close(end);
}

}  // namespace

bool PinnedPages::open(Pipe& pipe) {
  return pipe2(pipe.ends.data(), O_CLOEXEC) == 0 &&
         fcntl(pipe.ends[1], F_SETPIPE_SZ, kPlaces * kPage) >= 0;
}

bool PinnedPages::hold(std::byte* memory, std::size_t bytes) {
  pipes_.emplace_back();
  if (!open(pipes_.back())) return false;
  while (pipes_.back().bytes < bytes) {
    iovec part{memory + pipes_.back().bytes, bytes - pipes_.back().bytes};
    const ssize_t held = vmsplice(pipes_.back().ends[1], &part, 1, SPLICE_F_NONBLOCK);
    if (held <= 0) return false;
    pipes_.back().bytes += static_cast<std::size_t>(held);
  }
  return true;
}

std::shared_ptr<PinnedPages> PinnedPages::of(std::byte* memory, std::size_t bytes) {
  auto pages = std::make_shared<PinnedPages>();
  for (std::size_t at = 0; at < bytes; at += kBytesOfPipe)
    if (!pages->hold(memory + at, std::min(kBytesOfPipe, bytes - at))) return nullptr;
  return pages;
}

PinnedPages::~PinnedPages() {
  for (const Pipe& pipe : pipes_) close_ends(pipe.ends);
}

void PinnedPages::read(std::size_t offset, std::byte* to, std::size_t bytes) const {
  std::vector<std::byte> all(kBytesOfPipe);
  for (std::size_t index = offset / kBytesOfPipe; bytes > 0; ++index) {
    const Pipe& pipe = pipes_.at(index);
    Pipe copy;
    // A read removes the bytes, so this reads a second pipe that has the same pages.
    const bool is_read =
        open(copy) &&
        tee(pipe.ends[0], copy.ends[1], pipe.bytes, 0) == static_cast<ssize_t>(pipe.bytes) &&
        ::read(copy.ends[0], all.data(), pipe.bytes) == static_cast<ssize_t>(pipe.bytes);
    close_ends(copy.ends);
    if (!is_read) return;
    const std::size_t begin = offset - index * kBytesOfPipe;
    const std::size_t taken = std::min(bytes, pipe.bytes - begin);
    std::memcpy(to, all.data() + begin, taken);
    offset += taken;
    to += taken;
    bytes -= taken;
  }
}

}  // namespace tendon::cuda_double
