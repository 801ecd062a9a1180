// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <tendon/core/parallel_layout.hpp>
#include <utility>

namespace tendon::inline v0 {
namespace {

Result<void> check(std::string_view what, std::uint64_t value, std::uint64_t count) {
  if (value < count) return {};
  return Error{
      ErrorCode::invalid_argument, "parallel_layout",
      std::string(what) + " is " + std::to_string(value) +
          (count == 0 ? "; there are none" : "; legal are 0 to " + std::to_string(count - 1))};
}

/// `count` ranks from `first`, `stride` apart.
std::vector<GlobalRank> ranks(std::uint32_t first, std::uint32_t count, std::uint32_t stride) {
  std::vector<GlobalRank> members;
  members.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) members.push_back({first + i * stride});
  return members;
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
  const std::uint32_t above = rank.value / sizes_.tensor;
  return ParallelCoordinates{
      .tensor = rank.value % sizes_.tensor, .pipeline = above / sizes_.kv, .kv = above % sizes_.kv};
}

Result<std::vector<GlobalRank>> ParallelLayout::tensor_group_of(GlobalRank rank) const {
  TENDON_TRY(place, place_of(rank));
  return ranks(rank.value - place.tensor, sizes_.tensor, 1);
}

Result<std::vector<GlobalRank>> ParallelLayout::pipeline_group_of(GlobalRank rank) const {
  TENDON_TRY(place, place_of(rank));
  const std::uint32_t stride = sizes_.tensor * sizes_.kv;
  return ranks(rank.value - place.pipeline * stride, sizes_.pipeline, stride);
}

Result<std::vector<GlobalRank>> ParallelLayout::kv_group_of(GlobalRank rank) const {
  TENDON_TRY(place, place_of(rank));
  return ranks(rank.value - place.kv * sizes_.tensor, sizes_.kv, sizes_.tensor);
}

std::vector<std::vector<GlobalRank>> ParallelLayout::tensor_groups() const {
  std::vector<std::vector<GlobalRank>> groups;
  for (std::uint32_t first = 0; first < world_size(); first += sizes_.tensor)
    groups.push_back(ranks(first, sizes_.tensor, 1));
  return groups;
}

std::vector<std::vector<GlobalRank>> ParallelLayout::pipeline_groups() const {
  const std::uint32_t stride = sizes_.tensor * sizes_.kv;
  std::vector<std::vector<GlobalRank>> groups;
  for (std::uint32_t first = 0; first < stride; ++first)
    groups.push_back(ranks(first, sizes_.pipeline, stride));
  return groups;
}

std::vector<std::vector<GlobalRank>> ParallelLayout::kv_groups() const {
  std::vector<std::vector<GlobalRank>> groups;
  for (std::uint32_t stage = 0; stage < sizes_.pipeline; ++stage)
    for (std::uint32_t tensor = 0; tensor < sizes_.tensor; ++tensor)
      groups.push_back(ranks(stage * sizes_.tensor * sizes_.kv + tensor, sizes_.kv, sizes_.tensor));
  return groups;
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

}  // namespace tendon::inline v0
