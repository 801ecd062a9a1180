// SPDX-License-Identifier: Apache-2.0
// A consolidated file from anybody: if it opens, it must be readable to the last byte.
#include <cstdint>
#include <span>
#include <tendon/tensor/consolidated.hpp>

#include "require.hpp"

namespace {

using namespace tendon;

using tendon::test::exact_storage;
using tendon::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  const auto dict = parse_consolidated(exact_storage(input));
  if (!dict) {
    require(!dict.error().detail.empty());
    return 0;
  }
  for (const auto& [path, tensor] : *dict) {
    require(dict->contains(path));
    require(bitwise_equal(tensor, tensor.contiguous().value()));
  }
  require(dict->schema() != nullptr);
  return 0;
}
