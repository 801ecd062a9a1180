// SPDX-License-Identifier: Apache-2.0
#include "group/operands/fingerprint.hpp"

#include <array>
#include <bit>
#include <tendon/group/reduce_op.hpp>
#include <tendon/tensor/dtype.hpp>

#include "group/operands/collective.hpp"

namespace tendon::v0::detail {

void CallHistory::add(const Fingerprint& call) noexcept {
  for (const auto byte : std::bit_cast<std::array<std::uint8_t, sizeof call>>(call))
    hash_ = (hash_ ^ byte) * 16777619;
}

void mix_factor(Fingerprint& fingerprint, const ReduceOp& op) noexcept {
  if (op.kind() != ReduceKind::premul_sum) return;
  const auto bits = std::bit_cast<std::uint64_t>(op.factor());
  fingerprint.shape_hash ^= static_cast<std::uint32_t>(bits ^ bits >> 32);
}

std::string to_string(CollectiveOp op) {
  if (const Collective* const row = find_collective(op)) return std::string(row->name);
  return "operation " + std::to_string(static_cast<int>(op));
}

std::string to_string(const Fingerprint& fingerprint) {
  std::string text = to_string(fingerprint.op) + " #" + std::to_string(fingerprint.sequence);
  std::string what;
  const auto reduce = enumerator_from<ReduceKind>(fingerprint.reduce);
  const auto dtype = dtype_from_number(fingerprint.dtype);
  if (reduce) what = std::string(to_string(*reduce)) + (dtype ? " of " : ", ");
  if (dtype) what += std::string(to_string(*dtype)) + ", ";
  if (fingerprint.size_bytes != 0) what += std::to_string(fingerprint.size_bytes) + " bytes, ";
  const Collective* const row = find_collective(fingerprint.op);
  if (row != nullptr && row->has_root) what += "root " + std::to_string(fingerprint.root) + ", ";
  if (what.size() >= 2) text += " (" + what.substr(0, what.size() - 2) + ")";
  return text;
}

}  // namespace tendon::v0::detail
