// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/tensors.hpp>
#include <utility>
#include <vector>

#include "memory/copy.hpp"

namespace tendon::v0::detail {

/// How a collective uses its tensors.
enum class Use : std::uint8_t { read, write };

/// Whether the tensors must outlive the call.
enum class Hold : std::uint8_t {
  borrow,  ///< the caller waits
  keep,    ///< a share of their storage is taken
};

/// The description of tensors in an error.
struct FlatSummary {
  struct Each {
    std::string name;  ///< of a leaf; empty in a list
    DType dtype = DType::u8;
    Shape shape;
  };
  std::uint32_t tensor_count = 0;
  std::uint64_t size_bytes = 0;  ///< of all
  DType dtype = DType::u8;       ///< of the first
  Shape shape;                   ///< of the first
  std::vector<Each> first;       ///< empty for one tensor without a name
  static constexpr std::size_t kMostEach = 64;
  static constexpr std::size_t kMostTextBytes = 1500;

  void add(std::string_view name, const Tensor& tensor);
  void add(FlatSummary&& other);
};
/// `f32 [3, 4]`; for several `"weight" f32 [3, 4], "bias" f32 [4]`, at most kMostTextBytes and a
/// few words more.
[[nodiscard]] std::string to_string(const FlatSummary& summary);

/// Tensors as one run of bytes: each begins at a multiple of 64, in order. One operation therefore
/// serves a tensor and a whole TensorDict, and a cut at a multiple of 64 splits no element.
///
/// Owns:    copies of tensors with gaps, and with Hold::keep shares of the others.
/// Threads: one at a time.
/// Errors:  those of make().
/// Blocks:  never.
/// Cost:    one tensor: no allocation. More: two for all, and one a long name.
class Flat {
 public:
  struct Run {
    std::byte* data = nullptr;
    std::uint64_t begin = 0;  ///< in the whole
    std::uint64_t size_bytes = 0;
    DType dtype = DType::u8;
  };

  Flat() = default;
  /// read_only, unsupported_device, overlapping memory in a result; each names the tensor by its
  /// place in the list.
  [[nodiscard]] static Result<Flat> make(const Tensors& tensors, Use use, Hold hold,
                                         std::string_view where);
  /// Makes of one tensor `count` blocks of equal size, or one block of each of several tensors or
  /// dicts.
  [[nodiscard]] static Result<std::vector<Flat>> make_blocks(const Tensors& tensors,
                                                             std::uint32_t count, Use use,
                                                             Hold hold, std::string_view where);

  /// The size with the padding between the tensors.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// True if there are tensors with gaps, which were copied.
  [[nodiscard]] bool is_gappy() const noexcept { return !gappy_.empty(); }
  /// The bytes of the tensors alone.
  [[nodiscard]] std::uint64_t tensor_bytes() const noexcept;
  [[nodiscard]] std::span<const Run> runs() const noexcept {
    return runs_.empty() ? std::span(&one_, one_.data == nullptr ? 0 : 1) : std::span(runs_);
  }
  /// A hash of dtypes, shapes and the names of a dict's leaves, for comparison with other members.
  [[nodiscard]] std::uint32_t shape_hash() const noexcept { return shape_hash_; }
  /// The dtype of all, or nullopt when there are several (or none).
  [[nodiscard]] std::optional<DType> dtype() const noexcept;

  /// A hash of the places of the dtypes in [offset, offset + size), for comparison with another
  /// member's: its cut into tensors does not matter. 0 where there is nothing.
  [[nodiscard]] std::uint32_t layout(std::uint64_t offset, std::uint64_t size_bytes) const noexcept;
  [[nodiscard]] std::uint32_t layout() const noexcept { return layout(0, size_bytes_); }
  [[nodiscard]] const FlatSummary& summary() const noexcept { return summary_; }
  /// For a caller that moves the tensors on and needs nothing else of them.
  [[nodiscard]] FlatSummary take_summary() noexcept { return std::exchange(summary_, {}); }

  /// The shape_hash() of one tensor.
  [[nodiscard]] static std::uint32_t hash_of(const Tensor& tensor) noexcept;

  /// Calls f(data, offset in the range, bytes, dtype) for each stretch of [offset, offset + size).
  template <class F>
  void visit(std::uint64_t offset, std::uint64_t size_bytes, F f) const {
    const std::uint64_t end = offset + size_bytes;
    for (const Run& run : runs()) {
      const std::uint64_t from = std::max(offset, run.begin);
      const std::uint64_t to = std::min(end, run.begin + run.size_bytes);
      if (from < to) f(run.data + (from - run.begin), from - offset, to - from, run.dtype);
    }
  }
  void read(std::uint64_t offset, MutableBytes destination,
            CopyHint hint = CopyHint::cached) const {
    visit(offset, destination.size(), [&](std::byte* data, auto at, auto size, DType) {
      copy_bytes({destination.data() + at, size}, {data, size}, hint);
    });
  }
  void write(std::uint64_t offset, Bytes source) const {
    visit(offset, source.size(), [&](std::byte* data, auto at, auto size, DType) {
      std::memcpy(data, source.data() + at, size);
    });
  }
  /// Copies the result to tensors with gaps: once, at the end.
  void finish();
  /// Makes this a copy: later changes of the tensors do not matter.
  [[nodiscard]] Result<void> copy();
  /// True for the very same memory, in the same order.
  [[nodiscard]] bool is_same(const Flat& other) const noexcept;

 private:
  void hash(const Tensor& tensor) noexcept;
  void hash(std::string_view name) noexcept;
  Result<void> add(std::string_view name, const Tensor& tensor, Use use, Hold hold,
                   std::string_view where);
  Result<void> fill(const Tensors& tensors, Use use, Hold hold, std::string_view where);
  [[nodiscard]] Result<std::vector<Flat>> cut(std::uint32_t count, std::string_view where) &&;

  Run one_;
  std::vector<Run> runs_;  // when there are more
  std::uint64_t size_bytes_ = 0;
  std::uint32_t shape_hash_ = 2166136261u;
  FlatSummary summary_;
  std::uint32_t first_ = 0;  // place in a list of blocks, for errors
  std::vector<Tensor> kept_;
  struct Gappy {
    Tensor original;
    Tensor packed;
  };
  std::vector<Gappy> gappy_;
};

/// True if they may share memory. A quick look at their first and last bytes.
[[nodiscard]] bool may_overlap(std::span<const Flat> one, std::span<const Flat> other) noexcept;
/// Copies inputs that share memory with outputs, so that they are read unchanged.
[[nodiscard]] Result<void> copy_overlapping(std::span<Flat* const> inputs,
                                            std::span<const Flat> outputs);

}  // namespace tendon::v0::detail
