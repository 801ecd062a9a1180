// SPDX-License-Identifier: Apache-2.0
#include "tensor/append_tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/copy.hpp"

namespace tendon::v0::detail {

Result<void> append_tensor(AtomicFile& file, const Tensor& tensor) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  const std::uint64_t size_bytes = tensor.size_bytes();
  if (size_bytes == 0) return {};
  if (tensor.is_contiguous()) return file.write(Bytes(tensor.data(), size_bytes));
  std::vector<std::byte> buffer(std::min(kPieceBytes, size_bytes));
  for (std::uint64_t at = 0; at < size_bytes; at += kPieceBytes) {
    const MutableBytes piece(buffer.data(), std::min(kPieceBytes, size_bytes - at));
    gather_piece(tensor, at, piece);
    TENDON_CHECK(file.write(piece));
  }
  return {};
}

}  // namespace tendon::v0::detail
