// SPDX-License-Identifier: Apache-2.0
// Eigen's matrices in the stage's row-major order.
#pragma once

#include <Eigen/Core>
#include <algorithm>

namespace engine {

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using Row = Eigen::Matrix<Scalar, 1, Eigen::Dynamic>;
/// A view of other memory, such as that of a mapped file.
template <class Scalar>
using MatrixView = Eigen::Map<const Matrix<Scalar>>;
template <class Scalar>
using RowView = Eigen::Map<const Row<Scalar>>;

/// Up to this many rows are multiplied one by one: for more, Eigen copies the weights.
inline constexpr Eigen::Index kFewRows = 8;
/// The rows of the weights that stay in the cache meanwhile.
inline constexpr Eigen::Index kWeightRows = 64;

/// rows [T, in] times weight [out, in], transposed: [T, out].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> product(const Matrix<Scalar>& rows, const MatrixView<Scalar>& weight) {
  Matrix<Scalar> out(rows.rows(), weight.rows());
  if (rows.rows() > kFewRows) {
    out.noalias() = rows * weight.transpose();
    return out;
  }
  for (Eigen::Index first = 0; first < weight.rows(); first += kWeightRows) {
    const Eigen::Index count = std::min(kWeightRows, weight.rows() - first);
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
      out.row(row).segment(first, count).transpose().noalias() =
          weight.middleRows(first, count) * rows.row(row).transpose();
    }
  }
  return out;
}

}  // namespace engine
