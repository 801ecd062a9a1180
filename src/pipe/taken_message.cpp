// SPDX-License-Identifier: Apache-2.0
#include "pipe/taken_message.hpp"

#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"
#include "memory/large_copy.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {

Error unreadable(const Link& link, std::string_view why, ErrorCode code) {
  return Error{code, "pipe.recv",
               "a message from " + link.peer_name() + " cannot be read: " + std::string(why)};
}

Result<void> check_schema(const Taken& taken, const Link& link) {
  const Descriptor& descriptor = taken.incoming.descriptor;
  if (taken.schema == nullptr) {
    const ErrorCode why = taken.no_schema->code;
    const bool is_of_the_peer =
        why != ErrorCode::limit_exceeded && why != ErrorCode::unsupported_device;
    return unreadable(link, taken.no_schema->detail,
                      is_of_the_peer ? ErrorCode::corrupt_data : why);
  }
  const std::uint64_t expected = taken.schema->layout(descriptor.layout).total_bytes;
  if (descriptor.payload_bytes == expected) return {};
  return unreadable(link, "it has " + std::to_string(descriptor.payload_bytes) +
                              " bytes for a schema of " + std::to_string(expected));
}

Result<std::shared_ptr<const Value>> read_values(const Taken& taken, const Link& link) {
  const Descriptor& descriptor = taken.incoming.descriptor;
  if (descriptor.values_bytes == 0) return std::shared_ptr<const Value>();
  const auto* begin = taken.incoming.body.data + descriptor.payload_bytes;
  // Copied first: the peer could change its slot during the read.
  const std::vector<std::byte> json(begin, begin + descriptor.values_bytes);
  auto values = parse_json(json);
  if (!values)
    return unreadable(link, "its non-tensor data cannot be read: " + values.error().detail);
  return std::shared_ptr<const Value>(std::make_shared<const Value>(*std::move(values)));
}

Result<Storage> copy_out(const std::byte* data, std::uint64_t size_bytes) {
  TENDON_TRY(storage, Storage::allocate(size_bytes));
  copy_part({storage.data(), size_bytes}, {data, size_bytes}, size_bytes);
  return storage;
}

Result<TensorDict> private_copy(const TensorDict& batch) {
  const PackedView& packed = *packed_view(batch);
  const std::uint64_t size = packed.schema->layout(packed.layout).total_bytes;
  TENDON_TRY(fresh, copy_out(packed.storage.data(), size));
  return make_packed(packed.schema, packed.layout, std::move(fresh), packed.values);
}

bool is_lost(const Taken& taken) {
  const DeviceBody& body = *taken.incoming.device;
  return body.failure() == nullptr && body.gpu()->context()->loss() != cuda::Status::success;
}

PutBack untaken(Taken& taken) {
  PutBack returned;
  returned.number = taken.number;
  returned.placement = taken.placement;
  returned.untaken = std::make_unique<Taken>(std::move(taken));
  returned.untaken->lent = false;  // leaves in a slot of the host are copied at the next try
  return returned;
}

Result<DirectMessage> read_direct(const Taken& taken, const Link& link) {
  const IncomingBody& body = taken.incoming.body;
  const Descriptor& descriptor = taken.incoming.descriptor;
  if (const Error* failure = body.failure()) return *failure;
  if (taken.schema == nullptr) return check_schema(taken, link).error();
  DirectMessage message;
  message.body = taken.incoming.device;
  message.schema = taken.schema;
  message.placement = taken.placement;
  if (const auto wrong = check_direct(message, descriptor); !wrong.empty())
    return unreadable(link, wrong);
  if (const Error* failure = message.body->failure()) {
    return Error{failure->code, "pipe.recv",
                 "a message from " + link.peer_name() +
                     " is lost: its memory on the GPU cannot be mapped here (" + failure->detail +
                     ")"};
  }
  TENDON_TRY(values, read_values(taken, link));
  if (values != nullptr) {
    if (auto fits = check_values(*taken.schema, *values); !fits)
      return unreadable(link, fits.error().detail);
  }
  message.values = std::move(values);
  const std::uint64_t size = descriptor.payload_bytes;
  if (size != 0 && !taken.lent && body.place == IncomingBody::Place::peer_slot) {
    TENDON_TRY(fresh, copy_out(body.data, size));
    message.host = std::move(fresh);
  } else {
    const bool is_of_peer = body.place == IncomingBody::Place::peer_slot;
    message.host = Storage(body.owner, body.data, size, body.access,
                           is_of_peer ? Origin::peer_slot : Origin::here);
  }
  return message;
}

}  // namespace tendon::v0::detail
