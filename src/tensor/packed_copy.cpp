// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed_copy.hpp"

#include <algorithm>
#include <cstring>
#include <tendon/tensor/packed.hpp>

#include "memory/large_copy.hpp"
#include "tensor/copy.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {
namespace {

// Calls leaf(index, offset in the leaf, offset in the piece, bytes) and gap(offset in the piece,
// bytes) for each part of [offset, offset + size) of the packed form.
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

}  // namespace

void pack_piece(const TensorDict& source, Layout layout, std::uint64_t offset_bytes,
                MutableBytes piece) {
  const Schema& schema = *source.schema();
  const PackedLayout& packed = schema.layout(layout);
  walk_packed(
      schema, packed, offset_bytes, piece.size(),
      [&](std::uint32_t leaf, std::uint64_t in_leaf, std::uint64_t in_piece, std::uint64_t bytes) {
        const MutableBytes to = piece.subspan(in_piece, bytes);
        if (const LeafView view = leaf_view(source, leaf); view.contiguous)
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
        if (const LeafView view = leaf_view(destination, leaf); view.contiguous)
          copy_part({const_cast<std::byte*>(view.data) + in_leaf, bytes}, from, packed.total_bytes);
        else
          scatter_part(from, Tree::leaf_of(destination, leaf), in_leaf, packed.total_bytes);
      },
      [](std::uint64_t, std::uint64_t) {});
}

}  // namespace tendon::v0::detail
