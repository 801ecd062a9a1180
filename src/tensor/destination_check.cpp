// SPDX-License-Identifier: Apache-2.0
#include "tensor/destination_check.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "tensor/extent.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/runs.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {
namespace {

// The bytes from a tensor's first to its last element.
struct Extent {
  const std::byte* begin;
  const std::byte* end;
  std::size_t leaf;
};

Extent extent_of(const Tensor& tensor, std::size_t leaf) {
  // A Tensor's extent fits: it was checked when the view was made.
  const ByteExtent bytes =
      byte_extent(tensor.dtype(), tensor.shape(), tensor.strides()).value_or(ByteExtent());
  return {tensor.data() + bytes.begin, tensor.data() + bytes.end, leaf};
}

// Beyond this many runs two tangled leaves count as overlapping without a check: no sensible
// program has them.
constexpr std::uint64_t kMaxRunsCompared = 1u << 20;

// True when two bytes of the given leaves share an address. Exact, by sorting all their runs.
bool runs_collide(const TensorDict& dict, std::span<const Extent> leaves) {
  std::vector<std::pair<const std::byte*, const std::byte*>> runs;
  for (const Extent& extent : leaves) {
    const Tensor tensor = dict.leaf(extent.leaf);
    const Runs shape(tensor.dtype(), tensor.shape(), tensor.strides());
    if (tensor.size_bytes() / shape.run_bytes > kMaxRunsCompared - runs.size()) return true;
    const auto add = [&](std::int64_t at, std::uint64_t bytes) {
      runs.emplace_back(tensor.data() + at, tensor.data() + at + bytes);
    };
    RunWalker(shape, 0).walk(
        tensor.size_bytes(),
        [&](std::int64_t at, std::uint64_t, std::uint64_t bytes) { add(at, bytes); },
        [&](std::int64_t at, std::uint64_t, std::int64_t step, std::uint64_t count,
            std::uint64_t run_bytes) {
          for (std::uint64_t i = 0; i < count; ++i, at += step) add(at, run_bytes);
        });
  }
  std::sort(runs.begin(), runs.end());
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (runs[i].first < runs[i - 1].second) return true;
  return false;
}

// True when strides surely give each element its own address: each step is longer than all that the
// smaller steps reach together.
bool surely_distinct(const Tensor& tensor) {
  const Runs runs(tensor.dtype(), tensor.shape(), tensor.strides());
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxDimensions> steps;  // |step|, size
  for (std::size_t i = 0; i < runs.count; ++i) steps[i] = {std::abs(runs.steps[i]), runs.sizes[i]};
  std::sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(runs.count));
  auto reached = static_cast<std::int64_t>(runs.run_bytes);
  for (std::size_t i = 0; i < runs.count; ++i) {
    if (steps[i].first < reached) return false;
    reached += steps[i].first * (steps[i].second - 1);
  }
  return true;
}

Error refuse(ErrorCode code, const TensorDict& dict, std::size_t leaf, std::string_view why) {
  return Error{code, "tensor.destination",
               "leaf " + quote_text(dict.leaf_path(leaf)) + " " + std::string(why)};
}

Result<void> check_tree_writable(const TensorDict& destination) {
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < destination.leaf_count(); ++i) {
    const Tensor tensor = destination.leaf(i);
    if (tensor.element_count() == 0) continue;
    if (tensor.access() == Access::read_only) {
      return refuse(ErrorCode::read_only, destination, i, "lies in memory that may only be read");
    }
    extents.push_back(extent_of(tensor, i));
    if (!surely_distinct(tensor) && runs_collide(destination, {&extents.back(), 1})) {
      return refuse(ErrorCode::overlapping, destination, i,
                    "of shape " + to_string(tensor.shape()) + " and strides " +
                        to_string(tensor.strides()) + " keeps several elements in one place");
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t first = 0; first < extents.size();) {
    std::size_t next = first + 1;
    const std::byte* end = extents[first].end;
    for (; next < extents.size() && extents[next].begin < end; ++next)
      end = std::max(end, extents[next].end);
    const auto tangled = std::span<const Extent>(extents).subspan(first, next - first);
    if (tangled.size() > 1 && runs_collide(destination, tangled)) {
      return refuse(ErrorCode::overlapping, destination, tangled[1].leaf,
                    "shares memory with leaf " +
                        quote_text(destination.leaf_path(tangled[0].leaf)) +
                        " or another one near it");
    }
    first = next;
  }
  return {};
}

Result<void> check_tree_destination(const TensorDict& destination) {
  TENDON_CHECK(check_on_cpu(destination, "tensor.destination"));
  return check_tree_writable(destination);
}

Result<void> check_packed_writable(const PackedView& destination) {
  if (destination.storage.access() == Access::read_write) return {};
  return Error{ErrorCode::read_only, "tensor.destination",
               "the TensorDict lies in memory that may only be read"};
}

}  // namespace

Result<void> check_destination(const TensorDict& destination) {
  if (const PackedView* packed = packed_view(destination)) {
    TENDON_CHECK(check_on_cpu(destination, "tensor.destination"));
    return check_packed_writable(*packed);
  }
  return Tree::destination_check(destination, check_tree_destination);
}

Result<void> check_writable(const TensorDict& destination) {
  if (const PackedView* packed = packed_view(destination)) return check_packed_writable(*packed);
  return check_tree_writable(destination);
}

}  // namespace tendon::v0::detail
