// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "worker/llama_config.hpp"
#include "worker/matrix.hpp"

namespace engine {

/// Rotates pairs of elements, half a head apart, by angles that grow with the position (J. Su et
/// al., "RoFormer", 2021).
///
/// Owns:    cosines and sines of all positions of a context.
/// Threads: const calls are safe everywhere.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    8 KiB for 32 positions of a head of 64 floats.
template <class Scalar>
class Rope {
 public:
  explicit Rope(const LlamaConfig& config) : half_(config.head_width() / 2) {
    const auto context = static_cast<Eigen::Index>(config.context);
    cosines_.resize(context, half_);
    sines_.resize(context, half_);
    for (Eigen::Index place = 0; place < half_; ++place) {
      // In double: a float is too imprecise for the angles of late positions.
      const double speed =
          std::pow(config.rope_base, -static_cast<double>(place) / static_cast<double>(half_));
      for (Eigen::Index position = 0; position < context; ++position) {
        const double angle = static_cast<double>(position) * speed;
        cosines_(position, place) = static_cast<Scalar>(std::cos(angle));
        sines_(position, place) = static_cast<Scalar>(std::sin(angle));
      }
    }
  }

  /// Rotates all heads of one row.
  void turn(Eigen::Ref<Row<Scalar>> heads, std::uint32_t position) const {
    const auto cosines = cosines_.row(position).array();
    const auto sines = sines_.row(position).array();
    for (Eigen::Index at = 0; at < heads.size(); at += 2 * half_) {
      const Row<Scalar> first = heads.segment(at, half_);
      const auto second = heads.segment(at + half_, half_);
      heads.segment(at, half_).array() = first.array() * cosines - second.array() * sines;
      heads.segment(at + half_, half_).array() = second.array() * cosines + first.array() * sines;
    }
  }

 private:
  Eigen::Index half_;
  Matrix<Scalar> cosines_;  ///< [context, half a head]
  Matrix<Scalar> sines_;
};

}  // namespace engine
