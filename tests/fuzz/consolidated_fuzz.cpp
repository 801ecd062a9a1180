// SPDX-License-Identifier: Apache-2.0
// A consolidated file of anybody: what is opened must be readable to the last byte.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <tendon/tensor/consolidated.hpp>
#include <vector>

namespace {

using namespace tendon;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  // Exactly of the size, so that a sanitizer sees a read beyond its end.
  const auto memory = std::make_shared<std::vector<std::byte>>(input.begin(), input.end());
  const auto dict =
      parse_consolidated(Storage(memory, memory->data(), memory->size(), Access::read_only));
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
