// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tendon/core/parallel_layout.hpp>
#include <vector>

#include "bindings.hpp"
#include "errors.hpp"
#include "rendezvous.hpp"

namespace tendon::python {
namespace {

constexpr const char* kLayoutDoc =
    "Which process does what when a model is split over many, in three ways at once:\n"
    "rank = tensor + T * (kv + K * pipeline), with T tensor-parallel and K\n"
    "kv-parallel ways. Arithmetic only; every process computes the same.\n\n"
    "    layout = tendon.ParallelLayout(tensor=2, pipeline=group.size // 2)\n"
    "    mine = group.split(layout.tensor_group_of(group.rank))\n";

using Members = std::vector<std::uint32_t>;

Members values_of(const std::vector<GlobalRank>& ranks) {
  Members values;
  values.reserve(ranks.size());
  for (const GlobalRank rank : ranks) values.push_back(rank.value);
  return values;
}

std::vector<Members> values_of(const std::vector<std::vector<GlobalRank>>& groups) {
  std::vector<Members> values;
  values.reserve(groups.size());
  for (const auto& group : groups) values.push_back(values_of(group));
  return values;
}

GlobalRank global_rank(nb::handle object) { return {rank_from(object, "rank")}; }

ParallelLayout make(nb::handle tensor, nb::handle pipeline, nb::handle kv) {
  return unwrap(ParallelLayout::make(
      {rank_from(tensor, "tensor"), rank_from(pipeline, "pipeline"), rank_from(kv, "kv")}));
}

std::string text_of(const ParallelLayout& self) {
  const ParallelSizes& sizes = self.sizes();
  return "tendon.ParallelLayout(tensor=" + std::to_string(sizes.tensor) +
         ", pipeline=" + std::to_string(sizes.pipeline) + ", kv=" + std::to_string(sizes.kv) + ")";
}

using Class = nb::class_<ParallelLayout>;

void bind_places(Class& layout) {
  layout
      .def(
          "rank_of",
          [](const ParallelLayout& self, nb::handle tensor, nb::handle pipeline, nb::handle kv) {
            return unwrap(self.rank_of({rank_from(tensor, "tensor"),
                                        rank_from(pipeline, "pipeline"), rank_from(kv, "kv")}))
                .value;
          },
          nb::kw_only(), nb::arg("tensor") = 0, nb::arg("pipeline") = 0, nb::arg("kv") = 0,
          "The rank of the process at this place.",
          nb::sig("def rank_of(self, *, tensor: int = 0, pipeline: int = 0, kv: int = 0) -> int"))
      .def(
          "place_of",
          [](const ParallelLayout& self, nb::handle rank) {
            return unwrap(self.place_of(global_rank(rank)));
          },
          nb::arg("rank"), "The place of a rank: its tensor, pipeline and kv.",
          nb::sig("def place_of(self, rank: int) -> ParallelCoordinates"))
      .def(
          "stage_of",
          [](const ParallelLayout& self, nb::handle layer, nb::handle layer_count) {
            return unwrap(
                self.stage_of(rank_from(layer, "layer"), rank_from(layer_count, "layer_count")));
          },
          nb::arg("layer"), nb::arg("layer_count"),
          "The pipeline stage of a layer: layer * stages // layer_count.",
          nb::sig("def stage_of(self, layer: int, layer_count: int) -> int"))
      .def(
          "layers_of",
          [](const ParallelLayout& self, nb::handle stage, nb::handle layer_count) {
            const LayerRange layers = unwrap(
                self.layers_of(rank_from(stage, "stage"), rank_from(layer_count, "layer_count")));
            return nb::module_::import_("builtins").attr("range")(layers.first, layers.last);
          },
          nb::arg("stage"), nb::arg("layer_count"),
          "The layers of a stage, none where there are fewer layers than stages.",
          nb::sig("def layers_of(self, stage: int, layer_count: int) -> range"));
}

void bind_groups(Class& layout) {
  const auto bind = [&](const char* of_one, const char* all, const char* doc, const char* sig,
                        Result<std::vector<GlobalRank>> (ParallelLayout::*group_of)(GlobalRank)
                            const,
                        std::vector<std::vector<GlobalRank>> (ParallelLayout::*groups)() const) {
    layout
        .def(
            of_one,
            [group_of](const ParallelLayout& self, nb::handle rank) {
              return values_of(unwrap((self.*group_of)(global_rank(rank))));
            },
            nb::arg("rank"), doc, nb::sig(sig))
        .def(
            all, [groups](const ParallelLayout& self) { return values_of((self.*groups)()); },
            "All groups of this kind, by rising first member.");
  };
  bind("tensor_group_of", "tensor_groups",
       "The ranks that share the pipeline and kv of this one, rising.",
       "def tensor_group_of(self, rank: int) -> list[int]", &ParallelLayout::tensor_group_of,
       &ParallelLayout::tensor_groups);
  bind("pipeline_group_of", "pipeline_groups",
       "The ranks that share the tensor and kv of this one, rising.",
       "def pipeline_group_of(self, rank: int) -> list[int]", &ParallelLayout::pipeline_group_of,
       &ParallelLayout::pipeline_groups);
  bind("kv_group_of", "kv_groups",
       "The ranks that share the tensor and pipeline of this one, rising.",
       "def kv_group_of(self, rank: int) -> list[int]", &ParallelLayout::kv_group_of,
       &ParallelLayout::kv_groups);
}

}  // namespace

void bind_parallel_layout(nb::module_& module) {
  nb::class_<ParallelCoordinates>(module, "ParallelCoordinates", "The place of one process.")
      .def_ro("tensor", &ParallelCoordinates::tensor)
      .def_ro("pipeline", &ParallelCoordinates::pipeline)
      .def_ro("kv", &ParallelCoordinates::kv)
      .def("__repr__", [](const ParallelCoordinates& self) {
        return "tendon.ParallelCoordinates(tensor=" + std::to_string(self.tensor) +
               ", pipeline=" + std::to_string(self.pipeline) + ", kv=" + std::to_string(self.kv) +
               ")";
      });
  Class layout(module, "ParallelLayout", kLayoutDoc);
  layout
      .def(
          "__init__",
          [](ParallelLayout* self, nb::handle tensor, nb::handle pipeline, nb::handle kv) {
            new (self) ParallelLayout(make(tensor, pipeline, kv));
          },
          nb::kw_only(), nb::arg("tensor") = 1, nb::arg("pipeline") = 1, nb::arg("kv") = 1,
          "How many ways each kind of parallelism splits the model.",
          nb::sig("def __init__(self, *, tensor: int = 1, pipeline: int = 1, kv: int = 1) -> "
                  "None"))
      .def_prop_ro("tensor", [](const ParallelLayout& self) { return self.sizes().tensor; })
      .def_prop_ro("pipeline", [](const ParallelLayout& self) { return self.sizes().pipeline; })
      .def_prop_ro("kv", [](const ParallelLayout& self) { return self.sizes().kv; })
      .def_prop_ro("world_size", &ParallelLayout::world_size, "The product of the three.")
      .def("__repr__", text_of);
  bind_places(layout);
  bind_groups(layout);
}

}  // namespace tendon::python
