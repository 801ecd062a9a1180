// SPDX-License-Identifier: Apache-2.0
// A file from anybody: if it opens, it must be readable to the last byte, and must read back the
// same after it was written.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "require.hpp"
#include "tensor/packed_copy.hpp"

namespace {

using namespace tendon;

using tendon::test::exact_storage;
using tendon::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  const auto file = SafetensorsFile::parse(exact_storage(input));
  if (!file) {
    require(!file.error().detail.empty());
    return 0;
  }
  const SafetensorsHeader& header = file->header();
  require(header.size_bytes + header.data_bytes == size_bytes);
  std::uint64_t sum = 0;
  for (const SafetensorsEntry& entry : header.entries) sum += entry.end_bytes - entry.begin_bytes;
  require(sum == header.data_bytes);

  const TensorDict& dict = file->tensors();
  for (const auto& [path, tensor] : dict) {
    require(dict.contains(path));
    require(bitwise_equal(tensor, tensor.contiguous().value()));
  }

  const auto written = make_safetensors_header(dict);
  if (!written) return 0;  // a header may grow beyond the limit when it is written anew
  const PackedLayout& layout = dict.schema()->layout(Layout::safetensors);
  std::vector<std::byte> bytes = *written;
  bytes.resize(written->size() + layout.total_bytes);
  detail::pack_piece(dict, Layout::safetensors, 0,
                     std::span(bytes).subspan(written->size(), layout.total_bytes));
  const TensorDict again = parse_safetensors(exact_storage(bytes)).value();
  require(bitwise_equal(again, dict));
  require(again.keys() == dict.keys());
  return 0;
}
