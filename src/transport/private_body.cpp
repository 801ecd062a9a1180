// SPDX-License-Identifier: Apache-2.0
#include "transport/private_body.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <tendon/session/limits.hpp>

#include "memory/recycler.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kSmallBlockBytes = 256;
constexpr std::size_t kMiddleBlockBytes = 1024;

template <std::size_t kBytes>
struct Block {
  Block() {}  // NOLINT: leaves the bytes as they are; they are written at once
  alignas(64) std::array<std::byte, kBytes> bytes;
};

template <std::size_t kBytes>
IncomingBody take_block() {
  auto block = make_recycled<Block<kBytes>>();
  IncomingBody body;
  body.place = IncomingBody::Place::private_copy;
  body.data = block->bytes.data();
  body.owner = std::move(block);
  return body;
}

}  // namespace

IncomingBody make_private_body(std::uint64_t size_bytes) {
  assert(size_bytes <= kMaxInlineBytes);
  if (size_bytes == 0) return {};
  if (size_bytes <= kSmallBlockBytes) return take_block<kSmallBlockBytes>();
  if (size_bytes <= kMiddleBlockBytes) return take_block<kMiddleBlockBytes>();
  return take_block<kMaxInlineBytes>();
}

std::uint64_t private_cost_bytes(std::uint64_t size_bytes) noexcept {
  if (size_bytes == 0) return sizeof(Incoming);
  if (size_bytes <= kSmallBlockBytes) return sizeof(Incoming) + kSmallBlockBytes;
  if (size_bytes <= kMiddleBlockBytes) return sizeof(Incoming) + kMiddleBlockBytes;
  return sizeof(Incoming) + kMaxInlineBytes;
}

std::uint64_t private_limit_bytes(std::uint64_t cap_bytes) noexcept {
  return std::max(kMinSmallHeldBytes, cap_bytes / 8);
}

}  // namespace tendon::v0::detail
