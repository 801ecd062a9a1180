// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "worker/kv_pool.hpp"
#include "worker/llama_config.hpp"
#include "worker/matrix.hpp"
#include "worker/stage.hpp"

namespace engine {

/// The attention of a sequence's rows on all of its keys up to each row.
///
/// n: rows of the piece; G: heads that share one head of keys; D: width of a head; S: keys.
template <class Scalar>
class Attention {
 public:
  /// `pool` already has the keys of the piece's own rows.
  Attention(const LlamaConfig& config, const KvPool<Scalar>& pool, const Piece& piece)
      : group_(config.heads_of_a_key()), width_(config.head_width()), pool_(pool), piece_(piece) {}

  /// queries [n, heads * D], already scaled; the result has the same shape.
  [[nodiscard]] Matrix<Scalar> of(const Matrix<Scalar>& queries) const {
    Matrix<Scalar> out(queries.rows(), queries.cols());
    const Eigen::Index columns = group_ * width_;
    for (Eigen::Index head = 0; head * columns < queries.cols(); ++head) {
      // Puts the heads that share keys below each other: [n * G, D].
      const Matrix<Scalar> its = queries.middleCols(head * columns, columns);
      Matrix<Scalar> weights =
          scores(head, MatrixView<Scalar>(its.data(), its.rows() * group_, width_));
      to_weights(weights);
      const Matrix<Scalar> found = weighted_values(head, weights);
      out.middleCols(head * columns, columns) =
          MatrixView<Scalar>(found.data(), its.rows(), columns);
    }
    return out;
  }

 private:
  /// [n * G, S]
  [[nodiscard]] Matrix<Scalar> scores(Eigen::Index head, const MatrixView<Scalar>& queries) const {
    Matrix<Scalar> found(queries.rows(), Eigen::Index{piece_.end()});
    Eigen::Index begin = 0;
    for (const SlotRun& run : piece_.runs) {
      found.middleCols(begin, run.count).noalias() = queries * pool_.keys(head, run).transpose();
      begin += run.count;
    }
    return found;
  }

  /// The softmax of each row over the keys that it sees; 0 for later keys.
  void to_weights(Matrix<Scalar>& scores) const {
    for (Eigen::Index row = 0; row < scores.rows(); ++row) {
      const Eigen::Index seen = Eigen::Index{piece_.first} + row / group_ + 1;
      auto its = scores.row(row).head(seen).array();
      its = (its - its.maxCoeff()).exp();
      its /= its.sum();
      scores.row(row).tail(scores.cols() - seen).setZero();
    }
  }

  /// [n * G, D]
  [[nodiscard]] Matrix<Scalar> weighted_values(Eigen::Index head,
                                               const Matrix<Scalar>& weights) const {
    Matrix<Scalar> found = Matrix<Scalar>::Zero(weights.rows(), width_);
    Eigen::Index begin = 0;
    for (const SlotRun& run : piece_.runs) {
      found.noalias() += weights.middleCols(begin, run.count) * pool_.values(head, run);
      begin += run.count;
    }
    return found;
  }

  Eigen::Index group_;
  Eigen::Index width_;
  const KvPool<Scalar>& pool_;
  const Piece& piece_;
};

}  // namespace engine
