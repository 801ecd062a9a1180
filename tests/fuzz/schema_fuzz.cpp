// SPDX-License-Identifier: Apache-2.0
// A schema of a peer: if it can be read, it must be the only schema with these bytes, and
// everything that is made of a schema must work for it.
#include <cstdint>
#include <cstring>
#include <span>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "require.hpp"

namespace {

using namespace tendon;

using tendon::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  const auto decoded = Schema::decode(input);
  if (!decoded) {
    require(!decoded.error().detail.empty());
    return 0;
  }
  const Schema& schema = **decoded;
  const Bytes again = schema.encoding();
  require(again.size() == input.size() &&
          (input.empty() || std::memcmp(again.data(), input.data(), input.size()) == 0));
  require(describe_difference(schema, schema).empty());
  for (const Layout layout : {Layout::aligned, Layout::safetensors}) {
    const PackedLayout& packed = schema.layout(layout);
    require(packed.offsets.size() == schema.leaves().size());
    std::uint64_t end = 0;
    for (const std::uint32_t leaf : packed.order) {
      require(packed.offsets[leaf] >= end);
      end = packed.offsets[leaf] + schema.leaves()[leaf].size_bytes;
    }
    require(end == packed.total_bytes);
  }
  for (std::size_t i = 0; i < schema.leaves().size(); ++i)
    require(schema.find(schema.leaves()[i].path) == i);

  if (schema.layout(Layout::aligned).total_bytes > (1u << 20)) return 0;
  TensorDict dict = TensorDict::allocate(*decoded).value();
  require(dict.leaf_count() == schema.leaves().size());
  // As a tree, and with the schema computed anew from it.
  if (!dict.try_set("a value", Value(1))) return 0;
  require(dict.erase("a value").has_value());
  require(*dict.schema() == schema);
  return 0;
}
