// SPDX-License-Identifier: Apache-2.0
#include "channel/receiver.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

bool ChannelReceiver::has_arrived() {
  while (!inbox_.empty() && inbox_.front().aborted()) (void)inbox_.pop_front();
  return !inbox_.empty() && inbox_.front().arrived();
}

std::size_t ChannelReceiver::clear() {
  const std::size_t count = inbox_.size();
  while (!inbox_.empty()) (void)inbox_.pop_front();
  window_.drop_all();
  return count;
}

Result<void> ChannelReceiver::read_schema(const Incoming& incoming, const DeviceOffers* offers) {
  auto read = try_read_schema(incoming, offers);
  if (!read) unread_schema_ = {incoming.descriptor.schema, read.error()};
  return read;
}

Error ChannelReceiver::why_unknown(std::uint32_t number) const {
  if (unread_schema_ && unread_schema_->first == number) {
    Error why = unread_schema_->second;
    why.detail = "its schema was refused: " + why.detail;
    return why;
  }
  return Error{ErrorCode::corrupt_data, "channel.schema",
               "it is of schema " + std::to_string(number) + ", which was not announced"};
}

Result<void> ChannelReceiver::try_read_schema(const Incoming& incoming,
                                              const DeviceOffers* offers) {
  if (const Error* failure = incoming.body.failure()) return *failure;
  const std::uint64_t size = incoming.descriptor.body_bytes();
  const auto too_much = [&](std::uint64_t cost_bytes) {
    return Error{ErrorCode::limit_exceeded, "channel.schema",
                 "announced a schema that takes " + std::to_string(cost_bytes) +
                     " bytes here, while those of all pipes of this link take " +
                     std::to_string(budget_.bytes()) + " of at most " +
                     std::to_string(budget_.limit_bytes()) + " (ContextOptions::link_cap_bytes)"};
  };
  const std::uint64_t least_bytes = SchemaTable::least_cost_bytes(size);
  if (least_bytes > budget_.limit_bytes()) return too_much(least_bytes);
  // Copied first: the peer could change its slot during the read.
  const std::vector<std::byte> bytes(incoming.body.data, incoming.body.data + size);
  const Bytes encoding = Bytes(bytes).first(incoming.descriptor.payload_bytes);
  TENDON_TRY(schema, Schema::decode(encoding));
  std::shared_ptr<const Placement> placement;
  if (incoming.descriptor.header_bytes != 0) {
    return Error{ErrorCode::corrupt_data, "channel.schema", "announced a schema with a header"};
  }
  if (incoming.descriptor.values_bytes != 0) {
    if (offers == nullptr) {
      return Error{ErrorCode::unsupported_device, "channel.schema",
                   "announced tensors on GPUs, which only pipes and topics take"};
    }
    TENDON_TRY(said, Placement::read(Bytes(bytes).subspan(encoding.size()), schema->leaves().size(),
                                     *offers));
    placement = std::move(said);
  }
  const std::uint64_t cost_bytes = SchemaTable::cost_bytes(*schema);
  if (!schemas_.add(incoming.descriptor.schema, std::move(schema), std::move(placement)))
    return too_much(cost_bytes);
  return {};
}

}  // namespace tendon::v0::detail
