// SPDX-License-Identifier: Apache-2.0
// Non-tensor data of a peer: if it can be read, it must read back the same after it was written.
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

#include "require.hpp"

namespace {

using namespace tendon;

using tendon::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const auto value = parse_json(std::as_bytes(std::span(data, size_bytes)));
  if (!value) {
    require(!value.error().detail.empty());
    return 0;
  }
  const auto json = to_json(*value);
  if (!json) return 0;  // numbers may be written longer than they were, beyond the limit
  require(parse_json(as_bytes(*json)).value() == *value);
  require(to_json(*value).value() == *json);

  // Beside a schema the data is refused, or found under each path.
  static const auto schema = Schema::make({{"a/b", DType::u8, {2}}, {"c", DType::u8, {1}}}).value();
  static const Storage storage = Storage::allocate(128).value();
  auto dict = make_packed(schema, Layout::aligned, storage, std::make_shared<const Value>(*value));
  if (!dict) return 0;
  for (const auto& [path, item] : value->as_map()) require(dict->value(path) == item);
  std::ostringstream out;
  out << *dict;
  dict->set("c", Tensor::zeros(DType::u8, {1}).value());
  require(packed_view(*dict) == nullptr);
  for (const auto& [path, item] : value->as_map()) require(dict->value(path) == item);
  return 0;
}
