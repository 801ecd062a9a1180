// SPDX-License-Identifier: Apache-2.0
#include "worker/stage.hpp"

#include <string>
#include <tendon/core/error.hpp>
#include <utility>

#include "worker/llama_stage.hpp"

namespace engine {
namespace {

template <class Scalar>
tendon::Result<std::unique_ptr<Stage>> open_of(tendon::SafetensorsFile file,
                                               const LlamaConfig& config, tendon::LayerRange layers,
                                               std::uint32_t blocks) {
  TENDON_TRY(weights, WeightFinder<Scalar>(file, config).stage(layers));
  std::unique_ptr<Stage> stage =
      std::make_unique<LlamaStage<Scalar>>(std::move(file), config, std::move(weights), blocks);
  return stage;
}

}  // namespace

tendon::Result<std::unique_ptr<Stage>> Stage::open(tendon::SafetensorsFile file,
                                                   const LlamaConfig& config,
                                                   tendon::LayerRange layers,
                                                   std::uint32_t blocks) {
  TENDON_TRY(norm, file.tensors().find("model.norm.weight"));
  switch (norm.dtype()) {
    case tendon::DType::f32:
      return open_of<float>(std::move(file), config, layers, blocks);
    case tendon::DType::f64:
      return open_of<double>(std::move(file), config, layers, blocks);
    default:
      return tendon::Error{tendon::ErrorCode::unsupported_dtype, "engine.weights",
                           "the weights of the checkpoint are " +
                               std::string(to_string(norm.dtype())) +
                               "; this worker computes in f32 and f64"};
  }
}

}  // namespace engine
