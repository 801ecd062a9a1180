// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <tendon/core/parallel_layout.hpp>
#include <utility>

namespace tendon::v0 {
namespace {

Result<void> check(std::string_view what, std::uint64_t value, std::uint64_t count) {
  if (value < count) return {};
  return Error{
      ErrorCode::invalid_argument, "parallel_layout",
      std::string(what) + " is " + std::to_string(value) +
          (count == 0 ? "; there are none" : "; legal are 0 to " + std::to_string(count - 1))};
}

/// One coordinate of a rank: rank / stride % count.
struct Axis {
  std::uint32_t count;
  std::uint32_t stride;
  [[nodiscard]] std::uint32_t of(GlobalRank rank) const { return rank.value / stride % count; }
};

Axis tensor_axis(const ParallelSizes& sizes) { return {sizes.tensor, 1}; }
Axis kv_axis(const ParallelSizes& sizes) { return {sizes.kv, sizes.tensor}; }
Axis pipeline_axis(const ParallelSizes& sizes) { return {sizes.pipeline, sizes.tensor * sizes.kv}; }

/// The ranks that differ from `rank` along `axis` only, and itself.
std::vector<GlobalRank> group_along(const Axis& axis, GlobalRank rank) {
  const std::uint32_t first = rank.value - axis.of(rank) * axis.stride;
  std::vector<GlobalRank> members;
  members.reserve(axis.count);
  for (std::uint32_t i = 0; i < axis.count; ++i) members.push_back({first + i * axis.stride});
  return members;
}

std::vector<std::vector<GlobalRank>> groups_along(const Axis& axis, std::uint32_t world_size) {
  std::vector<std::vector<GlobalRank>> groups;
  groups.reserve(world_size / axis.count);
  for (std::uint32_t rank = 0; rank < world_size; ++rank)
    if (axis.of({rank}) == 0) groups.push_back(group_along(axis, {rank}));
  return groups;
}

}  // namespace

Result<ParallelLayout> ParallelLayout::make(const ParallelSizes& sizes) {
  std::uint64_t world = 1;
  for (const auto& [name, size] :
       {std::pair("tensor", sizes.tensor), std::pair("pipeline", sizes.pipeline),
        std::pair("kv", sizes.kv)}) {
    world *= size;
    if (size == 0 || world > kMaxWorldSize) {
      return Error{ErrorCode::invalid_argument, "parallel_layout",
                   std::string(name) + " is " + std::to_string(size) +
                       "; each size is at least 1, and their product at most " +
                       std::to_string(kMaxWorldSize)};
    }
  }
  return ParallelLayout(sizes);
}

Result<GlobalRank> ParallelLayout::rank_of(const ParallelCoordinates& place) const {
  TENDON_CHECK(check("the tensor coordinate", place.tensor, sizes_.tensor));
  TENDON_CHECK(check("the pipeline coordinate", place.pipeline, sizes_.pipeline));
  TENDON_CHECK(check("the kv coordinate", place.kv, sizes_.kv));
  return GlobalRank{place.tensor + sizes_.tensor * (place.kv + sizes_.kv * place.pipeline)};
}

Result<ParallelCoordinates> ParallelLayout::place_of(GlobalRank rank) const {
  TENDON_CHECK(check("the rank", rank.value, world_size()));
  return ParallelCoordinates{.tensor = tensor_axis(sizes_).of(rank),
                             .pipeline = pipeline_axis(sizes_).of(rank),
                             .kv = kv_axis(sizes_).of(rank)};
}

Result<std::vector<GlobalRank>> ParallelLayout::tensor_group_of(GlobalRank rank) const {
  TENDON_CHECK(check("the rank", rank.value, world_size()));
  return group_along(tensor_axis(sizes_), rank);
}

Result<std::vector<GlobalRank>> ParallelLayout::pipeline_group_of(GlobalRank rank) const {
  TENDON_CHECK(check("the rank", rank.value, world_size()));
  return group_along(pipeline_axis(sizes_), rank);
}

Result<std::vector<GlobalRank>> ParallelLayout::kv_group_of(GlobalRank rank) const {
  TENDON_CHECK(check("the rank", rank.value, world_size()));
  return group_along(kv_axis(sizes_), rank);
}

std::vector<std::vector<GlobalRank>> ParallelLayout::tensor_groups() const {
  return groups_along(tensor_axis(sizes_), world_size());
}

std::vector<std::vector<GlobalRank>> ParallelLayout::pipeline_groups() const {
  return groups_along(pipeline_axis(sizes_), world_size());
}

std::vector<std::vector<GlobalRank>> ParallelLayout::kv_groups() const {
  return groups_along(kv_axis(sizes_), world_size());
}

Result<std::uint32_t> ParallelLayout::stage_of(std::uint32_t layer,
                                               std::uint32_t layer_count) const {
  TENDON_CHECK(check("the layer", layer, layer_count));
  return static_cast<std::uint32_t>(std::uint64_t{layer} * sizes_.pipeline / layer_count);
}

Result<LayerRange> ParallelLayout::layers_of(std::uint32_t stage, std::uint32_t layer_count) const {
  TENDON_CHECK(check("the stage", stage, sizes_.pipeline));
  // The first layer of a stage: the smallest with layer * stages / layer_count >= stage.
  const auto first_of = [&](std::uint64_t wanted) {
    return static_cast<std::uint32_t>((wanted * layer_count + sizes_.pipeline - 1) /
                                      sizes_.pipeline);
  };
  return LayerRange{first_of(stage), first_of(stage + 1)};
}

}  // namespace tendon::v0
