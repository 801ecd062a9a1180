// SPDX-License-Identifier: Apache-2.0
// What `tendon topic echo` says of a sample.
#pragma once

#include <optional>
#include <string>
#include <tendon/fabric/sample.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// All elements count, but for those that are not numbers.
struct TensorStatistics {
  double min = 0;
  double max = 0;
  double mean = 0;
};

/// Nothing for a tensor without numbers, and of a type that is only moved (8-bit floats, complex).
[[nodiscard]] std::optional<TensorStatistics> statistics_of(const Tensor& tensor);

/// Lines: the sample, its gaps, each tensor with its statistics, each value.
[[nodiscard]] std::string describe_sample(const Sample& sample);
/// The same as one JSON document.
[[nodiscard]] Value::Map sample_document(const Sample& sample);

}  // namespace tendon::cli
