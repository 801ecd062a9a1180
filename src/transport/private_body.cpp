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

// Room for the control block that allocate_shared puts beside the bytes.
constexpr std::size_t kOverheadBytes = 128;

// One store for the process: bodies outlive links. Never destroyed, because a body may be released
// by a destructor of a static object.
template <std::size_t kBytes, std::size_t kKeptCount>
IncomingBody take_block() {
  static const auto& recycler = *new std::shared_ptr<Recycler>(
      std::make_shared<Recycler>(kBytes + kOverheadBytes, kKeptCount));
  auto block = std::allocate_shared<Block<kBytes>>(RecyclingAllocator<Block<kBytes>>(recycler));
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
  if (size_bytes <= 256) return take_block<256, 1024>();
  if (size_bytes <= 1024) return take_block<1024, 512>();
  return take_block<kMaxInlineBytes, 128>();
}

}  // namespace tendon::inline v0::detail
