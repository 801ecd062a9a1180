// SPDX-License-Identifier: Apache-2.0
// Converts between samples and messages of plain Zenoh: docs/protocol.md, "Plain Zenoh peers". A
// layout of other peers would be another file like this one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/subscriber.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <type_traits>

#include "fabric/samples/kept_sample.hpp"

namespace tendon::v0::detail {

/// The contents of the attachment: a publisher of Tendon put the message, and its number. Little
/// endian.
struct PlainOrigin {
  static constexpr std::array<char, 7> kMark = {'t', 'e', 'n', 'd', 'o', 'n', '\0'};

  std::array<char, 7> mark = kMark;
  std::uint8_t version = 1;    ///< later ones only add fields behind these
  std::uint64_t sequence = 0;  ///< as in SampleHeader, like the next two
  std::uint64_t stamp = 0;     ///< [ns]
  std::uint64_t incarnation = 0;
  ContextId context;
  std::uint32_t entity = 0;  ///< as the publisher's announcement names it
  std::uint32_t flags = 0;   ///< none is known
  SchemaHash schema;         ///< zeros: raw bytes

  friend bool operator==(const PlainOrigin&, const PlainOrigin&) = default;
};
static_assert(sizeof(PlainOrigin) == 72 && std::is_trivially_copyable_v<PlainOrigin>);

/// Empty: the attachment is none of Tendon's. Errors: protocol_violation, for one that begins like
/// one.
[[nodiscard]] Result<std::optional<PlainOrigin>> read_plain_origin(Bytes attachment);

/// Zenoh's encodings: of tensors, and of raw bytes without another one.
inline constexpr std::string_view kSafetensorsEncoding = "application/octet-stream;safetensors";
inline constexpr std::string_view kBytesEncoding = "zenoh/bytes";

/// The form in which a publisher puts samples for plain peers, from its options.
struct PlainForm {
  std::string encoding{kBytesEncoding};  ///< of raw bytes
  std::uint64_t most_bytes = 0;
};

/// A message on its way to plain peers.
struct PlainMessage {
  Storage payload;
  Storage attachment;
  std::string encoding;
};

/// Makes safetensors of a TensorDict, in their own memory; raw bytes stay as they are, in place.
/// Errors: message_too_large above `form.most_bytes`; unsupported_dtype, if safetensors have none
/// for a leaf; unsupported_device for a sample that lay on a GPU.
[[nodiscard]] Result<PlainMessage> to_plain(const std::shared_ptr<const KeptSample>& sample,
                                            const ContextId& context, std::uint32_t entity,
                                            const PlainForm& form);

/// The same without the attachment, as a copy of the caller's memory.
[[nodiscard]] Result<PlainMessage> to_bare(const TensorDict& sample, const PlainForm& form);
[[nodiscard]] Result<PlainMessage> to_bare(Bytes sample, const PlainForm& form);

/// Makes a TensorDict of a stranger's message, in its own memory. `wanted`: with its leaves in that
/// order and tree; null: in the order of arrival. Errors: those of SafetensorsFile;
/// schema_mismatch; resource_exhausted.
[[nodiscard]] Result<TensorDict> from_plain(const Storage& payload,
                                            const std::shared_ptr<const Schema>& wanted);

/// Tensors, or bytes: the other one is empty. In their own memory.
struct PlainParts {
  std::optional<TensorDict> tensors;
  Storage bytes;
};
/// Reads the sample of a stranger, in the form that a subscriber takes. Errors: those of
/// from_plain(), with PlainContent::tensors; else only resource_exhausted.
[[nodiscard]] Result<PlainParts> from_plain(const Storage& payload,
                                            const std::shared_ptr<const Schema>& wanted,
                                            PlainContent content);

}  // namespace tendon::v0::detail
