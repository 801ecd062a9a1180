// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "memory/large_copy.hpp"
#include "tensor/extent.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {
namespace {

// A strided tensor as equal runs of bytes without gaps: neighbouring dimensions that a single step
// covers are one dimension, and the innermost ones without gaps are the run.
struct Runs {
  explicit Runs(const Tensor& tensor) : run_bytes(item_size_bytes(tensor.dtype())) {
    const auto item_bytes = static_cast<std::int64_t>(run_bytes);
    for (std::size_t i = tensor.shape().size(); i-- > 0;) {
      const std::int64_t size = tensor.shape()[i];
      const std::int64_t step_bytes = tensor.strides()[i] * item_bytes;
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

// Walks the runs of a tensor from any byte on, and hands out (address offset, bytes) of each
// stretch.
class RunWalker {
 public:
  RunWalker(const Tensor& tensor, std::uint64_t offset_bytes)
      : runs_(tensor), in_run_(offset_bytes % runs_.run_bytes) {
    std::uint64_t run = offset_bytes / runs_.run_bytes;
    for (std::size_t i = 0; i < runs_.count; ++i) {
      const auto size = static_cast<std::uint64_t>(runs_.sizes[i]);
      index_[i] = static_cast<std::int64_t>(run % size);
      offset_ += index_[i] * runs_.steps[i];
      run /= size;
    }
  }

  // Calls copy(offset from element 0 [bytes], packed offset [bytes], bytes) until `left` bytes are
  // done. Equal small runs along the innermost dimension go to copy_many(offset, packed offset,
  // step, count).
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

template <std::size_t kBytes>
void copy_items(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i, to += to_step, from += from_step)
    std::memcpy(to, from, kBytes);
}

// `count` runs of equal size; for single elements a copy of fixed size is many times faster than
// memcpy's call.
void copy_runs(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
               std::uint64_t count, std::uint64_t run_bytes) {
  switch (run_bytes) {
    case 1:
      return copy_items<1>(to, to_step, from, from_step, count);
    case 2:
      return copy_items<2>(to, to_step, from, from_step, count);
    case 4:
      return copy_items<4>(to, to_step, from, from_step, count);
    case 8:
      return copy_items<8>(to, to_step, from, from_step, count);
    case 16:
      return copy_items<16>(to, to_step, from, from_step, count);
    default:
      break;
  }
  for (std::uint64_t i = 0; i < count; ++i, to += to_step, from += from_step)
    std::memcpy(to, from, run_bytes);
}

void gather_part(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece,
                 std::uint64_t whole_bytes) {
  if (piece.empty()) return;
  if (source.is_contiguous()) {
    copy_part(piece, {source.data() + offset_bytes, piece.size()}, whole_bytes);
    return;
  }
  RunWalker(source, offset_bytes)
      .walk(
          piece.size(),
          [&](std::int64_t at, std::uint64_t done, std::uint64_t bytes) {
            std::memcpy(piece.data() + done, source.data() + at, bytes);
          },
          [&](std::int64_t at, std::uint64_t done, std::int64_t step, std::uint64_t count,
              std::uint64_t run_bytes) {
            copy_runs(piece.data() + done, static_cast<std::int64_t>(run_bytes), source.data() + at,
                      step, count, run_bytes);
          });
}

void scatter_part(Bytes piece, const Tensor& destination, std::uint64_t offset_bytes,
                  std::uint64_t whole_bytes) {
  if (piece.empty()) return;
  // Tensors are views: constness is the view's, the right to write was checked on the way in.
  auto* const data = const_cast<std::byte*>(destination.data());
  if (destination.is_contiguous()) {
    copy_part({data + offset_bytes, piece.size()}, piece, whole_bytes);
    return;
  }
  RunWalker(destination, offset_bytes)
      .walk(
          piece.size(),
          [&](std::int64_t at, std::uint64_t done, std::uint64_t bytes) {
            std::memcpy(data + at, piece.data() + done, bytes);
          },
          [&](std::int64_t at, std::uint64_t done, std::int64_t step, std::uint64_t count,
              std::uint64_t run_bytes) {
            copy_runs(data + at, step, piece.data() + done, static_cast<std::int64_t>(run_bytes),
                      count, run_bytes);
          });
}

// Calls leaf(index, offset in the leaf, offset in the piece, bytes) and gap(offset in the piece,
// bytes) for what lies in [offset, offset + size) of the packed form.
template <class OnLeaf, class OnGap>
void walk_packed(const Schema& schema, const PackedLayout& packed, std::uint64_t offset,
                 std::uint64_t size, OnLeaf on_leaf, OnGap on_gap) {
  const auto end_of = [&](std::uint32_t leaf) {
    return packed.offsets[leaf] + schema.leaves()[leaf].size_bytes;
  };
  auto next = std::partition_point(packed.order.begin(), packed.order.end(),
                                   [&](std::uint32_t leaf) { return end_of(leaf) <= offset; });
  const std::uint64_t stop = offset + size;
  std::uint64_t at = offset;
  for (; at < stop && next != packed.order.end(); ++next) {
    const std::uint64_t begin = packed.offsets[*next];
    if (begin > at) {
      const std::uint64_t gap_bytes = std::min(begin, stop) - at;
      on_gap(at - offset, gap_bytes);
      at += gap_bytes;
    }
    if (at < begin || at == stop) break;
    const std::uint64_t bytes = std::min(end_of(*next), stop) - at;
    if (bytes > 0) on_leaf(*next, at - begin, at - offset, bytes);
    at += bytes;
  }
  if (at < stop) on_gap(at - offset, stop - at);
}

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

// Beyond this many runs two tangled leaves are called overlapping without looking: no program
// means that.
constexpr std::uint64_t kMaxRunsCompared = 1u << 20;

// True when two bytes of the given leaves share an address: exact, by sorting all their runs.
bool runs_collide(const TensorDict& dict, std::span<const Extent> leaves) {
  std::vector<std::pair<const std::byte*, const std::byte*>> runs;
  for (const Extent& extent : leaves) {
    const Tensor tensor = dict.leaf(extent.leaf);
    const Runs shape(tensor);
    if (tensor.size_bytes() / shape.run_bytes > kMaxRunsCompared - runs.size()) return true;
    const auto add = [&](std::int64_t at, std::uint64_t bytes) {
      runs.emplace_back(tensor.data() + at, tensor.data() + at + bytes);
    };
    RunWalker(tensor, 0).walk(
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

// True when strides surely reach every element at an address of its own: each step is longer than
// all that the smaller steps reach together.
bool surely_distinct(const Tensor& tensor) {
  const Runs runs(tensor);
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

Result<void> check_tree_destination(const TensorDict& destination) {
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < destination.leaf_count(); ++i) {
    const Tensor tensor = destination.leaf(i);
    if (tensor.device() != cpu()) {
      return refuse(ErrorCode::unsupported_device, destination, i,
                    "lies on " + to_string(tensor.device()) + "; legal is cpu");
    }
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

}  // namespace

void gather_piece(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece) {
  gather_part(source, offset_bytes, piece, piece.size());
}

void scatter_piece(Bytes piece, const Tensor& destination, std::uint64_t offset_bytes) {
  scatter_part(piece, destination, offset_bytes, piece.size());
}

void gather(const Tensor& source, MutableBytes destination) {
  gather_piece(source, 0, destination);
}

void scatter(Bytes source, const Tensor& destination) { scatter_piece(source, destination, 0); }

void copy_strided(const Tensor& destination, const Tensor& source) {
  const std::uint64_t size_bytes = source.size_bytes();
  if (size_bytes == 0) return;
  auto* const data = const_cast<std::byte*>(destination.data());
  if (destination.is_contiguous()) return gather(source, {data, size_bytes});
  if (source.is_contiguous()) return scatter({source.data(), size_bytes}, destination);
  std::array<std::byte, 16384> buffer;
  for (std::uint64_t at = 0; at < size_bytes; at += buffer.size()) {
    const MutableBytes piece(buffer.data(),
                             std::min<std::uint64_t>(buffer.size(), size_bytes - at));
    gather_piece(source, at, piece);
    scatter_piece(piece, destination, at);
  }
}

void pack_piece(const TensorDict& source, Layout layout, std::uint64_t offset_bytes,
                MutableBytes piece) {
  const Schema& schema = *source.schema();
  const PackedLayout& packed = schema.layout(layout);
  walk_packed(
      schema, packed, offset_bytes, piece.size(),
      [&](std::uint32_t leaf, std::uint64_t in_leaf, std::uint64_t in_piece, std::uint64_t bytes) {
        const MutableBytes to = piece.subspan(in_piece, bytes);
        if (const LeafView view = source.leaf_view(leaf); view.contiguous)
          copy_part(to, {view.data + in_leaf, bytes}, packed.total_bytes);
        else
          gather_part(Tree::leaf_of(source, leaf), in_leaf, to, packed.total_bytes);
      },
      [&](std::uint64_t in_piece, std::uint64_t bytes) {
        std::memset(piece.data() + in_piece, 0, bytes);
      });
}

void unpack_piece(Bytes piece, const TensorDict& destination, Layout layout,
                  std::uint64_t offset_bytes) {
  const Schema& schema = *destination.schema();
  const PackedLayout& packed = schema.layout(layout);
  walk_packed(
      schema, packed, offset_bytes, piece.size(),
      [&](std::uint32_t leaf, std::uint64_t in_leaf, std::uint64_t in_piece, std::uint64_t bytes) {
        const Bytes from = piece.subspan(in_piece, bytes);
        if (const LeafView view = destination.leaf_view(leaf); view.contiguous)
          copy_part({const_cast<std::byte*>(view.data) + in_leaf, bytes}, from, packed.total_bytes);
        else
          scatter_part(from, Tree::leaf_of(destination, leaf), in_leaf, packed.total_bytes);
      },
      [](std::uint64_t, std::uint64_t) {});
}

Result<void> check_destination(const TensorDict& destination) {
  if (const PackedView* packed = destination.packed()) {
    if (packed->storage.access() == Access::read_write) return {};
    return Error{ErrorCode::read_only, "tensor.destination",
                 "the TensorDict lies in memory that may only be read"};
  }
  return Tree::destination_check(destination, check_tree_destination);
}

}  // namespace tendon::v0::detail
