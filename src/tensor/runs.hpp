// SPDX-License-Identifier: Apache-2.0
// The elements of a strided tensor as stretches of bytes, for code that copies or compares them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/shape.hpp>

namespace tendon::v0::detail {

// A strided tensor as equal runs of bytes without gaps: neighbouring dimensions that a single step
// covers are one dimension, and the innermost ones without gaps are the run.
struct Runs {
  Runs(DType dtype, const Shape& shape, const Strides& strides)
      : run_bytes(item_size_bytes(dtype)) {
    const auto item_bytes = static_cast<std::int64_t>(run_bytes);
    for (std::size_t i = shape.size(); i-- > 0;) {
      const std::int64_t size = shape[i];
      const std::int64_t step_bytes = strides[i] * item_bytes;
      if (size == 1) continue;
      if (count == 0 && step_bytes == static_cast<std::int64_t>(run_bytes)) {
        run_bytes *= static_cast<std::uint64_t>(size);
      } else if (count > 0 && step_bytes == steps[count - 1] * sizes[count - 1]) {
        sizes[count - 1] *= size;
      } else {
        sizes[count] = size;
        steps[count] = step_bytes;
        ++count;
      }
    }
  }

  std::uint64_t run_bytes;
  // For the dimensions outside a run, innermost first.
  std::array<std::int64_t, kMaxDimensions> sizes{};
  std::array<std::int64_t, kMaxDimensions> steps{};  // [bytes]
  std::size_t count = 0;
};

// Walks the runs of a tensor from any byte on, and calls back with (address offset, bytes) of each
// stretch.
class RunWalker {
 public:
  RunWalker(const Runs& runs, std::uint64_t offset_bytes)
      : runs_(runs), in_run_(offset_bytes % runs_.run_bytes) {
    std::uint64_t run = offset_bytes / runs_.run_bytes;
    for (std::size_t i = 0; i < runs_.count; ++i) {
      const auto size = static_cast<std::uint64_t>(runs_.sizes[i]);
      index_[i] = static_cast<std::int64_t>(run % size);
      offset_ += index_[i] * runs_.steps[i];
      run /= size;
    }
  }

  // Calls copy(offset from element 0 [bytes], packed offset [bytes], bytes) until `left` bytes are
  // done. For equal small runs along the innermost dimension it calls copy_many(offset, packed
  // offset, step, count).
  template <class Copy, class CopyMany>
  void walk(std::uint64_t left, Copy copy, CopyMany copy_many) {
    std::uint64_t done = 0;
    while (left > 0) {
      if (in_run_ == 0 && runs_.count > 0 && left >= runs_.run_bytes) {
        const std::uint64_t whole = left / runs_.run_bytes;
        const std::uint64_t in_row = static_cast<std::uint64_t>(runs_.sizes[0] - index_[0]);
        const std::uint64_t count = std::min(whole, in_row);
        copy_many(offset_, done, runs_.steps[0], count, runs_.run_bytes);
        advance(count);
        done += count * runs_.run_bytes;
        left -= count * runs_.run_bytes;
        continue;
      }
      const std::uint64_t bytes = std::min(left, runs_.run_bytes - in_run_);
      copy(offset_ + static_cast<std::int64_t>(in_run_), done, bytes);
      done += bytes;
      left -= bytes;
      in_run_ += bytes;
      if (in_run_ == runs_.run_bytes) {
        in_run_ = 0;
        if (runs_.count > 0) advance(1);
      }
    }
  }

 private:
  void advance(std::uint64_t count) {
    index_[0] += static_cast<std::int64_t>(count);
    offset_ += static_cast<std::int64_t>(count) * runs_.steps[0];
    for (std::size_t i = 0; index_[i] == runs_.sizes[i]; ++i) {
      offset_ -= index_[i] * runs_.steps[i];
      index_[i] = 0;
      if (i + 1 == runs_.count) break;
      ++index_[i + 1];
      offset_ += runs_.steps[i + 1];
    }
  }

  Runs runs_;
  std::uint64_t in_run_;
  std::array<std::int64_t, kMaxDimensions> index_{};
  std::int64_t offset_ = 0;
};

}  // namespace tendon::v0::detail
