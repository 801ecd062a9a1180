// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "memory/large_copy.hpp"
#include "tensor/runs.hpp"

namespace tendon::v0::detail {
namespace {

template <std::size_t kBytes>
void copy_items(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i, to += to_step, from += from_step)
    std::memcpy(to, from, kBytes);
}

// Copies `count` runs of equal size. For single elements a copy of fixed size is many times faster
// than a call of memcpy.
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

}  // namespace

void gather_part(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece,
                 std::uint64_t whole_bytes) {
  if (piece.empty()) return;
  if (source.is_contiguous()) {
    copy_part(piece, {source.data() + offset_bytes, piece.size()}, whole_bytes);
    return;
  }
  RunWalker({source.dtype(), source.shape(), source.strides()}, offset_bytes)
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
  // Tensors are views: constness is the view's; the right to write was checked before.
  auto* const data = const_cast<std::byte*>(destination.data());
  if (destination.is_contiguous()) {
    copy_part({data + offset_bytes, piece.size()}, piece, whole_bytes);
    return;
  }
  RunWalker({destination.dtype(), destination.shape(), destination.strides()}, offset_bytes)
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

}  // namespace tendon::v0::detail
