// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "controller/block_budget.hpp"
#include "worker/block_tables.hpp"
#include "worker/llama_config.hpp"
#include "worker/matrix.hpp"

namespace engine {

/// The keys and values of one layer, in slots that BlockTables assigns.
///
/// Owns:    the memory, [keys and values, heads of keys, slots, width of a head].
/// Threads: one.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a page is touched only when its slot is used, so a large pool costs nothing before.
template <class Scalar>
class KvPool {
 public:
  KvPool(const LlamaConfig& config, std::uint32_t blocks)
      : heads_(config.kv_heads),
        slots_(Eigen::Index{blocks} * kBlockTokens),
        width_(config.head_width()),
        elements_(std::make_unique_for_overwrite<Scalar[]>(
            static_cast<std::size_t>(2 * heads_ * slots_ * width_))) {}

  /// keys, values: those of one token, head after head.
  void write(std::uint32_t slot, const Eigen::Ref<const Row<Scalar>>& keys,
             const Eigen::Ref<const Row<Scalar>>& values) {
    for (Eigen::Index head = 0; head < heads_; ++head) {
      Eigen::Map<Row<Scalar>>(at(head, slot), width_) = keys.segment(head * width_, width_);
      Eigen::Map<Row<Scalar>>(at(heads_ + head, slot), width_) =
          values.segment(head * width_, width_);
    }
  }
  /// [tokens of the run, width of a head]
  [[nodiscard]] MatrixView<Scalar> keys(Eigen::Index head, const SlotRun& run) const {
    return MatrixView<Scalar>(at(head, run.first), run.count, width_);
  }
  [[nodiscard]] MatrixView<Scalar> values(Eigen::Index head, const SlotRun& run) const {
    return MatrixView<Scalar>(at(heads_ + head, run.first), run.count, width_);
  }

 private:
  [[nodiscard]] Scalar* at(Eigen::Index plane, std::uint32_t slot) const {
    return elements_.get() + (plane * slots_ + slot) * width_;
  }

  Eigen::Index heads_;
  Eigen::Index slots_;
  Eigen::Index width_;
  std::unique_ptr<Scalar[]> elements_;
};

}  // namespace engine
