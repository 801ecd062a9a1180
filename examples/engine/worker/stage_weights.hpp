// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor.hpp>
#include <utility>
#include <vector>

#include "worker/llama_config.hpp"
#include "worker/matrix.hpp"

namespace engine {

/// W: width; Q, K: width of all heads, and of all heads of keys; F: of the feed-forward layer.
template <class Scalar>
struct LayerWeights {
  RowView<Scalar> input_norm;  ///< [W]
  MatrixView<Scalar> q;        ///< [Q, W]
  MatrixView<Scalar> k;        ///< [K, W]
  MatrixView<Scalar> v;        ///< [K, W]
  MatrixView<Scalar> o;        ///< [W, Q]
  RowView<Scalar> post_norm;   ///< [W]
  MatrixView<Scalar> gate;     ///< [F, W]
  MatrixView<Scalar> up;       ///< [F, W]
  MatrixView<Scalar> down;     ///< [W, F]
};

/// The weights of the last stage: views of a mapped file, whose pages all processes share.
template <class Scalar>
struct StageWeights {
  std::vector<LayerWeights<Scalar>> layers;
  RowView<Scalar> norm;     ///< [W]
  MatrixView<Scalar> head;  ///< [vocabulary, W]
};

/// Finds the weights of a checkpoint by their names.
template <class Scalar>
class WeightFinder {
 public:
  /// Both arguments outlive this object.
  WeightFinder(const tendon::SafetensorsFile& file, const LlamaConfig& config)
      : file_(file), config_(config) {}

  /// Errors: schema_mismatch, with the tensor, its actual and its required form.
  [[nodiscard]] tendon::Result<StageWeights<Scalar>> stage(tendon::LayerRange range) const {
    TENDON_TRY(norm, row("norm"));
    TENDON_TRY(head, matrix("embed_tokens", config_.vocabulary, config_.width));
    StageWeights<Scalar> found{.layers = {}, .norm = norm, .head = head};
    for (std::uint32_t number = range.first; number < range.last; ++number) {
      TENDON_TRY(its, layer("layers." + std::to_string(number)));
      found.layers.push_back(its);
    }
    return found;
  }

 private:
  [[nodiscard]] tendon::Result<LayerWeights<Scalar>> layer(const std::string& at) const {
    const std::uint32_t width = config_.width;
    const std::uint32_t keys = config_.kv_heads * config_.head_width();
    const std::uint32_t inner = config_.ffn_width;
    TENDON_TRY(input_norm, row(at + ".input_layernorm"));
    TENDON_TRY(q, matrix(at + ".self_attn.q_proj", width, width));
    TENDON_TRY(k, matrix(at + ".self_attn.k_proj", keys, width));
    TENDON_TRY(v, matrix(at + ".self_attn.v_proj", keys, width));
    TENDON_TRY(o, matrix(at + ".self_attn.o_proj", width, width));
    TENDON_TRY(post_norm, row(at + ".post_attention_layernorm"));
    TENDON_TRY(gate, matrix(at + ".mlp.gate_proj", inner, width));
    TENDON_TRY(up, matrix(at + ".mlp.up_proj", inner, width));
    TENDON_TRY(down, matrix(at + ".mlp.down_proj", width, inner));
    return LayerWeights<Scalar>{.input_norm = input_norm,
                                .q = q,
                                .k = k,
                                .v = v,
                                .o = o,
                                .post_norm = post_norm,
                                .gate = gate,
                                .up = up,
                                .down = down};
  }

  [[nodiscard]] tendon::Result<RowView<Scalar>> row(const std::string& name) const {
    TENDON_TRY(data, data_of(name, {config_.width}));
    return RowView<Scalar>(data, config_.width);
  }
  [[nodiscard]] tendon::Result<MatrixView<Scalar>> matrix(const std::string& name,
                                                          std::uint32_t rows,
                                                          std::uint32_t columns) const {
    TENDON_TRY(data, data_of(name, {rows, columns}));
    return MatrixView<Scalar>(data, rows, columns);
  }

  [[nodiscard]] tendon::Result<const Scalar*> data_of(const std::string& name,
                                                      const tendon::Shape& shape) const {
    const std::string whole = "model." + name + ".weight";
    TENDON_TRY(tensor, file_.tensors().find(whole));
    if (tensor.shape() != shape) {
      return tendon::Error{tendon::ErrorCode::schema_mismatch, "engine.weights",
                           whole + " has the shape " + to_string(tensor.shape()) +
                               " in the checkpoint; legal is " + to_string(shape)};
    }
    TENDON_TRY(elements, tensor.template try_span<const Scalar>());
    return elements.data();
  }

  const tendon::SafetensorsFile& file_;
  const LlamaConfig& config_;
};

}  // namespace engine
