// SPDX-License-Identifier: Apache-2.0
#include "channel/schema_table.hpp"

#include <algorithm>
#include <tendon/tensor/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

const SchemaTable::Entry SchemaTable::kUnknown;

SchemaTable::SchemaTable(std::uint64_t cap_bytes, HeldBytes* budget)
    : limit_bytes_(std::min<std::uint64_t>(kMaxSchemaBytes, cap_bytes / 4)), budget_(budget) {}

std::uint64_t SchemaTable::cost_bytes(const Schema& schema) noexcept {
  constexpr std::uint64_t kLeafBytes = 256;
  return kLeafBytes * schema.leaves().size() + least_cost_bytes(schema.encoding().size());
}

std::uint64_t SchemaTable::least_cost_bytes(std::uint64_t encoding_bytes) noexcept {
  constexpr std::uint64_t kDecodedPerEncodedByte = 16;
  return kDecodedPerEncodedByte * encoding_bytes;
}

std::uint32_t SchemaTable::number_of(const std::shared_ptr<const Schema>& schema,
                                     const Placement* placement) const noexcept {
  const auto lies_so = [&](const Placement* other) {
    return other == placement || (other != nullptr && placement != nullptr && *other == *placement);
  };
  for (const Entry& entry : entries_)
    if (entry.schema != nullptr && (entry.schema == schema || *entry.schema == *schema) &&
        lies_so(entry.placement.get()))
      return entry.number;
  return 0;
}

bool SchemaTable::add(std::uint32_t number, std::shared_ptr<const Schema> schema,
                      std::shared_ptr<const Placement> placement) {
  const std::size_t place = number % kMaxSchemas;
  // Most channels have one schema, and there may be ten thousand of them.
  if (place >= entries_.size()) entries_.resize(place + 1);
  Entry& entry = entries_[place];
  forget(entry);
  const std::uint64_t cost = cost_bytes(*schema);
  // The newest stays, however large it is.
  while (bytes_ != 0 && bytes_ + cost > limit_bytes_) {
    forget(*std::ranges::min_element(entries_, {}, [](const Entry& known) {
      return known.schema == nullptr ? ~std::uint64_t{0} : known.age;
    }));
  }
  auto share = budget_ == nullptr ? HeldBytes::Share() : budget_->ask(cost);
  if (!share) return false;
  bytes_ += cost;
  entry = {std::move(schema), number, ++announcements_, *std::move(share), std::move(placement)};
  last_number_ = number;
  return true;
}

void SchemaTable::forget(Entry& entry) noexcept {
  if (entry.schema != nullptr) bytes_ -= cost_bytes(*entry.schema);
  entry = {};
}

void SchemaTable::clear() noexcept {
  for (Entry& entry : entries_) forget(entry);
}

}  // namespace tendon::v0::detail
