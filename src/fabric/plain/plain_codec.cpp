// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_codec.hpp"

#include <cstring>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/value.hpp>
#include <utility>
#include <vector>

#include "memory/large_copy.hpp"
#include "tensor/packed_copy.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

Result<Storage> copy_of(Bytes bytes) {
  TENDON_TRY(copy, Storage::allocate(bytes.size()));
  copy_part({copy.data(), bytes.size()}, bytes, bytes.size());
  return copy;
}

Result<void> check_size(std::uint64_t size_bytes, const PlainForm& form) {
  if (size_bytes <= form.most_bytes) return {};
  return Error{ErrorCode::message_too_large, "publisher.plain",
               "a sample of " + std::to_string(size_bytes) +
                   " bytes is not put for plain Zenoh peers: plain_bytes is " +
                   std::to_string(form.most_bytes)};
}

// The whole file, in its own memory.
Result<Storage> safetensors_of(const TensorDict& tensors, const PlainForm& form) {
  TENDON_TRY(header, make_safetensors_header(tensors));
  const std::uint64_t data_bytes = tensors.schema()->layout(Layout::safetensors).total_bytes;
  const std::uint64_t whole_bytes = header.size() + data_bytes;
  TENDON_CHECK(check_size(whole_bytes, form));
  TENDON_TRY(file, Storage::allocate(whole_bytes));
  std::memcpy(file.data(), header.data(), header.size());
  pack_piece(tensors, Layout::safetensors, 0, {file.data() + header.size(), data_bytes});
  return file;
}

// The sample in place.
Result<TensorDict> tensors_of(const std::shared_ptr<const KeptSample>& sample) {
  const SharedMessage& message = sample->message;
  const std::uint64_t payload_bytes = message.descriptor.payload_bytes;
  std::shared_ptr<const Value> values;
  if (message.descriptor.values_bytes != 0) {
    TENDON_TRY(parsed,
               parse_json(message.body.subspan(payload_bytes, message.descriptor.values_bytes)));
    values = std::make_shared<const Value>(std::move(parsed));
  }
  // Read-only, as the storage says.
  Storage storage(sample, const_cast<std::byte*>(message.body.data()), payload_bytes,
                  Access::read_only);
  return make_packed(message.schema, message.descriptor.layout, std::move(storage),
                     std::move(values));
}

// The difference of these tensors from the wanted ones; empty: none, in whatever order.
std::string obstacle(const Schema& wanted, const Schema& came) {
  for (const SchemaLeaf& leaf : wanted.leaves()) {
    const auto found = came.find(leaf.path);
    if (!found) return "there is no tensor " + quote_text(leaf.path);
    const SchemaLeaf& other = came.leaves()[*found];
    if (other.dtype != leaf.dtype || other.shape != leaf.shape)
      return "tensor " + quote_text(leaf.path) + " has another type or shape";
  }
  if (came.leaves().size() == wanted.leaves().size()) return {};
  return "there are " + std::to_string(came.leaves().size()) + " tensors, not " +
         std::to_string(wanted.leaves().size());
}

}  // namespace

Result<std::optional<PlainOrigin>> read_plain_origin(Bytes attachment) {
  constexpr auto& kMark = PlainOrigin::kMark;
  if (attachment.size() < kMark.size() ||
      std::memcmp(attachment.data(), kMark.data(), kMark.size()) != 0)
    return std::optional<PlainOrigin>();
  PlainOrigin origin;
  if (attachment.size() < sizeof origin) {
    return Error{ErrorCode::protocol_violation, "subscriber.plain",
                 "an attachment of Tendon has " + std::to_string(attachment.size()) +
                     " bytes, not " + std::to_string(sizeof origin)};
  }
  std::memcpy(&origin, attachment.data(), sizeof origin);
  if (origin.version != 0 && origin.sequence != 0) return std::optional(origin);
  return Error{ErrorCode::protocol_violation, "subscriber.plain",
               "an attachment of Tendon has the version or the sequence 0"};
}

Result<PlainMessage> to_plain(const std::shared_ptr<const KeptSample>& sample,
                              const ContextId& context, std::uint32_t entity,
                              const PlainForm& form) {
  const SharedMessage& message = sample->message;
  if (message.placement != nullptr) {
    return Error{ErrorCode::unsupported_device, "publisher.plain",
                 "samples with tensors on a GPU are not put for plain Zenoh peers: publish a copy "
                 "in host memory for them, on another key"};
  }
  const std::uint64_t payload_bytes = message.descriptor.payload_bytes;
  PlainOrigin origin{.sequence = sample->header.sequence,
                     .stamp = sample->header.stamp,
                     .incarnation = sample->header.incarnation,
                     .context = context,
                     .entity = entity,
                     .schema = {}};
  if (message.schema != nullptr) origin.schema = message.schema->hash();
  PlainMessage plain;
  TENDON_TRY(attachment, copy_of(std::as_bytes(std::span(&origin, 1))));
  plain.attachment = std::move(attachment);
  if (message.schema == nullptr) {
    TENDON_CHECK(check_size(payload_bytes, form));
    plain.encoding = form.encoding;
    plain.payload = Storage(sample, const_cast<std::byte*>(message.body.data()), payload_bytes,
                            Access::read_only);
    return plain;
  }
  TENDON_TRY(tensors, tensors_of(sample));
  TENDON_TRY(payload, safetensors_of(tensors, form));
  plain.encoding = kSafetensorsEncoding;
  plain.payload = std::move(payload);
  return plain;
}

Result<PlainMessage> to_bare(const TensorDict& sample, const PlainForm& form) {
  TENDON_TRY(payload, safetensors_of(sample, form));
  return PlainMessage{std::move(payload), {}, std::string(kSafetensorsEncoding)};
}

Result<PlainMessage> to_bare(Bytes sample, const PlainForm& form) {
  TENDON_CHECK(check_size(sample.size(), form));
  TENDON_TRY(payload, copy_of(sample));
  return PlainMessage{std::move(payload), {}, form.encoding};
}

Result<TensorDict> from_plain(const Storage& payload, const std::shared_ptr<const Schema>& wanted) {
  if (wanted == nullptr) {
    TENDON_TRY(copy, copy_of(payload.bytes()));
    return parse_safetensors(std::move(copy));
  }
  TENDON_TRY(came, parse_safetensors(payload));
  const Schema& schema = *came.schema();
  if (std::string why = obstacle(*wanted, schema); !why.empty())
    return Error{ErrorCode::schema_mismatch, "subscriber.plain", std::move(why)};
  const PackedLayout& layout = wanted->layout(Layout::aligned);
  TENDON_TRY(packed, Storage::allocate(layout.total_bytes));
  if (layout.total_bytes != wanted->size_bytes())  // gaps between leaves may be sent on
    std::memset(packed.data(), 0, layout.total_bytes);
  for (std::size_t i = 0; i < wanted->leaves().size(); ++i) {
    const LeafView view = leaf_view(came, *schema.find(wanted->leaves()[i].path));
    if (view.size_bytes != 0)
      std::memcpy(packed.data() + layout.offsets[i], view.data, view.size_bytes);
  }
  return make_packed(wanted, Layout::aligned, std::move(packed), came.values());
}

Result<PlainParts> from_plain(const Storage& payload, const std::shared_ptr<const Schema>& wanted,
                              PlainContent content) {
  if (content == PlainContent::tensors) {
    TENDON_TRY(tensors, from_plain(payload, wanted));
    return PlainParts{std::move(tensors), {}};
  }
  TENDON_TRY(copy, copy_of(payload.bytes()));
  if (content == PlainContent::both) {
    if (auto tensors = parse_safetensors(copy)) return PlainParts{*std::move(tensors), {}};
  }
  return PlainParts{std::nullopt, std::move(copy)};
}

}  // namespace tendon::v0::detail
