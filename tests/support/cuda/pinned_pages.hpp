// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace tendon::cuda_double {

/// The pages that a range of memory had when it was registered, as a device knows them. A page that
/// replaces one of these after MADV_REMOVE is not among them. Pipes hold the pages.
class PinnedPages {
 public:
  /// Returns null if the system does not let a pipe hold them.
  static std::shared_ptr<PinnedPages> of(std::byte* memory, std::size_t bytes);
  PinnedPages() = default;
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  ~PinnedPages();

  /// Copies bytes of the pages to `to`; thread-safe.
  void read(std::size_t offset, std::byte* to, std::size_t bytes) const;

 private:
  struct Pipe {
    std::array<int, 2> ends{-1, -1};
    std::size_t bytes = 0;
  };
  static bool open(Pipe& pipe);
  bool hold(std::byte* memory, std::size_t bytes);

  std::vector<Pipe> pipes_;
};

}  // namespace tendon::cuda_double
