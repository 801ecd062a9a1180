// SPDX-License-Identifier: Apache-2.0
#include "pipe/schema_table.hpp"

#include <algorithm>
#include <tendon/tensor/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

SchemaTable::SchemaTable(std::uint64_t cap_bytes)
    : limit_bytes_(std::min<std::uint64_t>(kMaxSchemaBytes, cap_bytes / 4)) {}

std::uint64_t SchemaTable::cost_bytes(const Schema& schema) noexcept {
  constexpr std::uint64_t kLeafBytes = 256;
  constexpr std::uint64_t kDecodedPerEncodedByte = 16;
  return kLeafBytes * schema.leaves().size() + kDecodedPerEncodedByte * schema.encoding().size();
}

const std::shared_ptr<const Schema>& SchemaTable::find(std::uint32_t number) const noexcept {
  static const std::shared_ptr<const Schema> kNone;
  const Entry& entry = entries_[number % kMaxSchemas];
  return entry.number == number ? entry.schema : kNone;
}

std::uint32_t SchemaTable::number_of(const std::shared_ptr<const Schema>& schema) const noexcept {
  for (const Entry& entry : entries_)
    if (entry.schema != nullptr && (entry.schema == schema || *entry.schema == *schema))
      return entry.number;
  return 0;
}

void SchemaTable::add(std::uint32_t number, std::shared_ptr<const Schema> schema) {
  Entry& entry = entries_[number % kMaxSchemas];
  forget(entry);
  bytes_ += cost_bytes(*schema);
  entry = {std::move(schema), number, ++announcements_};
  last_number_ = number;
  // The newest stays, however large it is.
  while (bytes_ > limit_bytes_) {
    const auto oldest = std::ranges::min_element(entries_, {}, [](const Entry& known) {
      return known.schema == nullptr ? ~std::uint64_t{0} : known.age;
    });
    if (oldest->age == announcements_) return;
    forget(*oldest);
  }
}

void SchemaTable::forget(Entry& entry) noexcept {
  if (entry.schema != nullptr) bytes_ -= cost_bytes(*entry.schema);
  entry = {};
}

}  // namespace tendon::v0::detail
