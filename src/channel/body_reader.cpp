// SPDX-License-Identifier: Apache-2.0
#include "channel/body_reader.hpp"

#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "memory/large_copy.hpp"

namespace tendon::v0::detail {
namespace {

// A share of a body's memory, which counts while the program has it.
struct HeldBody {
  std::shared_ptr<std::atomic<std::uint32_t>> count;
  std::shared_ptr<const void> body;

  HeldBody(std::shared_ptr<std::atomic<std::uint32_t>> held, std::shared_ptr<const void> owner)
      : count(std::move(held)), body(std::move(owner)) {
    count->fetch_add(1, std::memory_order_relaxed);
  }
  HeldBody(const HeldBody&) = delete;
  HeldBody& operator=(const HeldBody&) = delete;
  ~HeldBody() { count->fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace

Lend BodyReader::may_lend(Link& link, const IncomingBody& body) const {
  return held_->load(std::memory_order_relaxed) < max_held_ && link.lend(body) ? Lend::yes
                                                                               : Lend::no;
}

Result<Storage> BodyReader::bytes_of(IncomingBody& body, std::uint64_t size_bytes,
                                     Lend lend) const {
  if (size_bytes == 0) return Storage();
  const bool is_slot = body.place == IncomingBody::Place::peer_slot;
  if (is_slot && lend == Lend::no) {
    TENDON_TRY(copy, Storage::allocate(size_bytes));
    copy_part({copy.data(), size_bytes}, {body.data, size_bytes}, size_bytes);
    body = {};  // returns the slot now
    return copy;
  }
  return Storage(std::make_shared<HeldBody>(held_, std::move(body.owner)), body.data, size_bytes,
                 body.access, is_slot ? Origin::peer_slot : Origin::here);
}

Error BodyReader::unreadable(const Link& link, std::string_view what) const {
  return Error{ErrorCode::corrupt_data, where_,
               "peer " + link.peer_name() + ": " + std::string(what)};
}

Result<std::shared_ptr<const Value>> BodyReader::values_of(const Link& link,
                                                           const Incoming& incoming) const {
  const Descriptor& descriptor = incoming.descriptor;
  if (descriptor.values_bytes == 0) return std::shared_ptr<const Value>();
  // Copied first: the peer could change its slot during the read.
  const std::byte* begin = incoming.body.data + descriptor.payload_bytes;
  const std::vector<std::byte> json(begin, begin + descriptor.values_bytes);
  auto parsed = parse_json(json);
  if (!parsed) {
    return unreadable(link, "sent non-tensor data that cannot be read: " + parsed.error().detail);
  }
  return std::shared_ptr<const Value>(std::make_shared<const Value>(*std::move(parsed)));
}

Result<TensorDict> BodyReader::tensors_of(const Link& link, Incoming& incoming,
                                          std::shared_ptr<const Schema> schema, Lend lend) const {
  const Descriptor& descriptor = incoming.descriptor;
  if (schema == nullptr)
    return unreadable(link, "sent a message of a schema that is not known here");
  const std::uint64_t expected = schema->layout(descriptor.layout).total_bytes;
  if (descriptor.payload_bytes != expected) {
    return unreadable(link, "sent " + std::to_string(descriptor.payload_bytes) +
                                " bytes for a schema of " + std::to_string(expected));
  }
  TENDON_TRY(values, values_of(link, incoming));
  TENDON_TRY(payload, bytes_of(incoming.body, descriptor.payload_bytes, lend));
  return make_packed(std::move(schema), descriptor.layout, std::move(payload), std::move(values));
}

Result<DirectMessage> BodyReader::direct_of(const Link& link, Incoming& incoming,
                                            std::shared_ptr<const Schema> schema,
                                            std::shared_ptr<const Placement> placement,
                                            Lend lend) const {
  if (schema == nullptr)
    return unreadable(link, "sent a message of a schema that is not known here");
  DirectMessage message;
  message.body = incoming.device;
  message.schema = std::move(schema);
  message.placement = std::move(placement);
  if (const auto wrong = check_direct(message, incoming.descriptor); !wrong.empty())
    return unreadable(link, "sent a message that cannot be read: " + std::string(wrong));
  if (const Error* failure = message.body->failure()) {
    // Memory that is short here would be requested again.
    const bool is_for_good = failure->code == ErrorCode::resource_exhausted;
    return Error{is_for_good ? ErrorCode::unsupported_device : failure->code, where_,
                 "a message from " + link.peer_name() +
                     " is lost: its memory on the GPU cannot be mapped here (" + failure->detail +
                     ")"};
  }
  TENDON_TRY(values, values_of(link, incoming));
  message.values = std::move(values);
  TENDON_TRY(host, bytes_of(incoming.body, incoming.descriptor.payload_bytes, lend));
  message.host = std::move(host);
  return message;
}

}  // namespace tendon::v0::detail
