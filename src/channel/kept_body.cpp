// SPDX-License-Identifier: Apache-2.0
#include "channel/kept_body.hpp"

#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "tensor/packed_copy.hpp"

namespace tendon::v0::detail {

Result<void> KeptBody::make_room(SharedMessage what, std::uint16_t header_bytes,
                                 const AcquireSlot& acquire) {
  what.descriptor.header_bytes = header_bytes;
  const std::uint64_t size = what.descriptor.body_bytes();
  if (size > kMaxInlineBytes) {
    TENDON_TRY(slot, acquire(size));
    what.slot = std::move(slot);
  }
  if (what.slot == nullptr) {
    inlined.resize(size);
    what.body = inlined;
  } else {
    what.body = what.slot->memory().first(size);
  }
  message = std::move(what);
  return {};
}

Result<void> KeptBody::make_room(const TensorDict& tensors, std::uint16_t header_bytes,
                                 const AcquireSlot& acquire) {
  SharedMessage what;
  what.schema = tensors.schema();
  Descriptor& descriptor = what.descriptor;
  descriptor.kind = MessageKind::data;
  descriptor.layout = Layout::aligned;
  descriptor.payload_bytes = what.schema->layout(Layout::aligned).total_bytes;
  std::string values;
  if (tensors.values() != nullptr) {
    TENDON_TRY(json, to_json(*tensors.values()));
    values = std::move(json);
    descriptor.values_bytes = static_cast<std::uint32_t>(values.size());
  }
  TENDON_CHECK(make_room(std::move(what), header_bytes, acquire));
  std::memcpy(memory().data() + message.descriptor.payload_bytes, values.data(), values.size());
  return {};
}

Result<void> KeptBody::pack(const TensorDict& tensors, std::uint16_t header_bytes,
                            const AcquireSlot& acquire) {
  TENDON_CHECK(make_room(tensors, header_bytes, acquire));
  pack_piece(tensors, Layout::aligned, 0, memory().first(message.descriptor.payload_bytes));
  return {};
}

MutableBytes KeptBody::memory() {
  if (message.slot == nullptr) return inlined;
  return message.slot->memory().first(message.descriptor.body_bytes());
}

}  // namespace tendon::v0::detail
