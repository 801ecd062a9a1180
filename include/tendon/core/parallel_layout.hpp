// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/export.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// How many ways each kind of parallelism splits a model. World size = tensor * pipeline * kv.
struct ParallelSizes {
  std::uint32_t tensor = 1;
  std::uint32_t pipeline = 1;
  /// Splits the keys and values of attention along the sequence.
  std::uint32_t kv = 1;
};

/// The place of one process in each kind of parallelism.
struct ParallelCoordinates {
  std::uint32_t tensor = 0;
  std::uint32_t pipeline = 0;
  std::uint32_t kv = 0;
  friend bool operator==(const ParallelCoordinates&, const ParallelCoordinates&) = default;
};

/// A run of layers: [first, last).
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// Which process does what when a model is split over many: rank = tensor + T * (kv + K * pipeline)
/// with T tensor-parallel and K kv-parallel ways. Tensor-parallel neighbours, which talk most, are
/// thus neighbours in rank. Arithmetic only; every process computes the same.
///
/// Example:
///   const ParallelLayout layout = ParallelLayout::make({.tensor = 4, .pipeline = 2}).value();
///   const ParallelCoordinates place = layout.place_of(GlobalRank{5}).value();
///   const LayerRange layers = layout.layers_of(place.pipeline, 80).value();
///   std::cout << "layers " << layers.first << " to " << layers.last << '\n';
///   Group tensor_group = group.split(layout.tensor_group_of(GlobalRank{5}).value(), 30s).value();
///
/// Owns:    three numbers.
/// Threads: a value.
/// Errors:  invalid_argument, naming the value and what is legal.
/// Blocks:  never.
/// Cost:    divisions; lists of groups allocate.
class TENDON_API ParallelLayout {
 public:
  static constexpr std::uint32_t kMaxWorldSize = 1u << 20;

  /// Every size at least 1, their product at most kMaxWorldSize.
  [[nodiscard]] static Result<ParallelLayout> make(const ParallelSizes& sizes);

  [[nodiscard]] const ParallelSizes& sizes() const noexcept { return sizes_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept {
    return sizes_.tensor * sizes_.pipeline * sizes_.kv;
  }
  [[nodiscard]] Result<GlobalRank> rank_of(const ParallelCoordinates& place) const;
  [[nodiscard]] Result<ParallelCoordinates> place_of(GlobalRank rank) const;

  /// The members of the group of `rank`, by rising rank: those that share its other two
  /// coordinates. A member's GroupRank is its place in the list.
  [[nodiscard]] Result<std::vector<GlobalRank>> tensor_group_of(GlobalRank rank) const;
  [[nodiscard]] Result<std::vector<GlobalRank>> pipeline_group_of(GlobalRank rank) const;
  [[nodiscard]] Result<std::vector<GlobalRank>> kv_group_of(GlobalRank rank) const;

  /// All groups of a kind, by rising first member.
  [[nodiscard]] std::vector<std::vector<GlobalRank>> tensor_groups() const;
  [[nodiscard]] std::vector<std::vector<GlobalRank>> pipeline_groups() const;
  [[nodiscard]] std::vector<std::vector<GlobalRank>> kv_groups() const;

  /// The pipeline stage of a layer: floor(layer * stages / layer_count), in integers. Stages differ
  /// by at most one layer; with fewer layers than stages some have none.
  [[nodiscard]] Result<std::uint32_t> stage_of(std::uint32_t layer,
                                               std::uint32_t layer_count) const;
  /// The layers whose stage_of() is `stage`.
  [[nodiscard]] Result<LayerRange> layers_of(std::uint32_t stage, std::uint32_t layer_count) const;

 private:
  explicit ParallelLayout(const ParallelSizes& sizes) : sizes_(sizes) {}

  ParallelSizes sizes_;
};

}  // namespace v0
}  // namespace tendon
