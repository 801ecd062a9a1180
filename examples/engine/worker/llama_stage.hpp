// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor.hpp>
#include <utility>
#include <vector>

#include "worker/attention.hpp"
#include "worker/kv_pool.hpp"
#include "worker/matrix.hpp"
#include "worker/rope.hpp"
#include "worker/stage.hpp"
#include "worker/stage_weights.hpp"

namespace engine {

/// A Stage whose weights have one type. T: rows of a step; W: width.
template <class Scalar>
class LlamaStage final : public Stage {
 public:
  LlamaStage(tendon::SafetensorsFile file, const LlamaConfig& config, StageWeights<Scalar> weights,
             std::uint32_t blocks)
      : file_(std::move(file)), config_(config), weights_(std::move(weights)), rope_(config) {
    pools_.reserve(weights_.layers.size());
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      pools_.emplace_back(config, blocks);
    }
  }

  [[nodiscard]] tendon::DType dtype() const override { return tendon::dtype_of<Scalar>(); }

  [[nodiscard]] std::vector<std::vector<double>> forward(const tendon::Tensor& received,
                                                         std::span<const Piece> pieces) override {
    Matrix<Scalar> rows = MatrixView<Scalar>(received.span<const Scalar>().data(),
                                             received.shape()[0], received.shape()[1]);
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      rows += attention(layer, rows, pieces);
      rows += feed_forward(weights_.layers[layer], rows);
    }
    return logits(rows, pieces);
  }

 private:
  using Index = Eigen::Index;

  [[nodiscard]] Matrix<Scalar> normed(const Matrix<Scalar>& rows,
                                      const RowView<Scalar>& weight) const {
    Matrix<Scalar> out(rows.rows(), rows.cols());
    for (Index row = 0; row < rows.rows(); ++row) {
      const Scalar mean = rows.row(row).squaredNorm() / static_cast<Scalar>(rows.cols());
      const Scalar scale = 1 / std::sqrt(mean + static_cast<Scalar>(config_.rms_eps));
      out.row(row) = rows.row(row).cwiseProduct(weight) * scale;
    }
    return out;
  }

  /// [T, W]
  [[nodiscard]] Matrix<Scalar> attention(std::size_t layer, const Matrix<Scalar>& rows,
                                         std::span<const Piece> pieces) {
    const LayerWeights<Scalar>& weights = weights_.layers[layer];
    const Matrix<Scalar> in = normed(rows, weights.input_norm);
    Matrix<Scalar> queries = product(in, weights.q);
    Matrix<Scalar> keys = product(in, weights.k);
    const Matrix<Scalar> values = product(in, weights.v);
    Matrix<Scalar> out(queries.rows(), queries.cols());
    const Scalar scale = 1 / std::sqrt(static_cast<Scalar>(config_.head_width()));
    Index begin = 0;
    for (const Piece& piece : pieces) {
      for (std::uint32_t at = 0; at < piece.count; ++at) {
        const Index row = begin + at;
        rope_.turn(queries.row(row), piece.first + at);
        rope_.turn(keys.row(row), piece.first + at);
        pools_[layer].write(slot_of(piece.runs, piece.first + at), keys.row(row), values.row(row));
      }
      out.middleRows(begin, piece.count) = Attention<Scalar>(config_, pools_[layer], piece)
                                               .of(queries.middleRows(begin, piece.count) * scale);
      begin += piece.count;
    }
    return product(out, weights.o);
  }

  /// [T, W]
  [[nodiscard]] Matrix<Scalar> feed_forward(const LayerWeights<Scalar>& weights,
                                            const Matrix<Scalar>& rows) const {
    const Matrix<Scalar> in = normed(rows, weights.post_norm);
    Matrix<Scalar> inner = product(in, weights.gate);
    // SiLU
    inner.array() /= 1 + (-inner.array()).exp();
    inner.array() *= product(in, weights.up).array();
    return product(inner, weights.down);
  }

  [[nodiscard]] std::vector<std::vector<double>> logits(const Matrix<Scalar>& rows,
                                                        std::span<const Piece> pieces) const {
    const auto asked = std::ranges::count(pieces, Piece::Logits::of_last_row, &Piece::logits);
    Matrix<Scalar> last(asked, rows.cols());
    Index end = 0;
    Index taken = 0;
    for (const Piece& piece : pieces) {
      end += piece.count;
      if (piece.logits == Piece::Logits::of_last_row) last.row(taken++) = rows.row(end - 1);
    }
    const Matrix<Scalar> found = product(normed(last, weights_.norm), weights_.head);
    std::vector<std::vector<double>> said;
    for (Index row = 0; row < found.rows(); ++row) {
      said.emplace_back(found.row(row).begin(), found.row(row).end());
    }
    return said;
  }

  tendon::SafetensorsFile file_;  ///< keeps the weights mapped
  LlamaConfig config_;
  StageWeights<Scalar> weights_;
  Rope<Scalar> rope_;
  std::vector<KvPool<Scalar>> pools_;  ///< one for each layer
};

}  // namespace engine
