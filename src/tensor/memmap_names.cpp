// SPDX-License-Identifier: Apache-2.0
#include "tensor/memmap_names.hpp"

#include "tensor/on_cpu.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kPrefix = "torch.";

bool is_eight_bit_float(DType dtype) { return dtype >= DType::f8_e3m4; }

}  // namespace

std::string memmap_file_name(std::string_view key) {
  constexpr std::string_view kRefused = "/<>:\"|?*\\ %\x7f";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (key.empty()) return "%";
  std::string name;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool dots = key == "." || key == "..";
    if (byte >= 0x20 && !dots && kRefused.find(c) == std::string_view::npos) {
      name += c;
      continue;
    }
    name += '%';
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

std::optional<std::string> memmap_dtype(DType dtype) {
  if (is_eight_bit_float(dtype)) return std::nullopt;
  return std::string(kPrefix) + std::string(full_name(dtype));
}

std::optional<DType> dtype_of_memmap(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const DTypeInfo& row : dtype_table())
    if (row.full_name == name && !is_eight_bit_float(row.dtype)) return row.dtype;
  return std::nullopt;
}

Result<void> check_memmap_leaf(const TreeLeaf& leaf, std::string_view path,
                               std::string_view where) {
  const auto refused = [&](ErrorCode code, const std::string& why) {
    return Error{code, where, quote_text(path) + " " + why};
  };
  const Tensor& tensor = leaf.tensor;
  if (leaf.batching == Batching::exempt) {
    return refused(ErrorCode::invalid_argument,
                   "is exempt from the batch size, which tensordict's files cannot say");
  }
  TENDON_CHECK(check_on_cpu(tensor.device(), quote_text(path), where));
  if (!memmap_dtype(tensor.dtype())) {
    return refused(ErrorCode::unsupported_dtype, "is " + std::string(to_string(tensor.dtype())) +
                                                     ", which tensordict's files do not have");
  }
  return {};
}

}  // namespace tendon::v0::detail
