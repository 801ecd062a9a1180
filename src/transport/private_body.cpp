// SPDX-License-Identifier: Apache-2.0
#include "transport/private_body.hpp"

#include <array>
#include <cassert>
#include <tendon/session/limits.hpp>

#include "memory/recycler.hpp"

namespace tendon::inline v0::detail {
namespace {

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
  if (size_bytes <= 256) return take_block<256>();
  if (size_bytes <= 1024) return take_block<1024>();
  return take_block<kMaxInlineBytes>();
}

}  // namespace tendon::inline v0::detail
