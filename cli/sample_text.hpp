// SPDX-License-Identifier: Apache-2.0
// What `tendon topic echo` says of a sample, and `tendon call` of an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tendon/fabric/sample.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>
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

/// A line for each tensor, with its statistics, and for each value; a line break in front of each.
[[nodiscard]] std::string describe_tensors(const TensorDict& tensors);
/// The same as a JSON document.
[[nodiscard]] Value::Map tensors_document(const TensorDict& dict);

/// What may be an image has a small picture below its line, or not.
enum class Pictures : std::uint8_t { none, blocks };

/// Lines: the sample, its gaps, each tensor with its statistics, each value.
void print_sample(const Sample& sample, Pictures pictures);
/// The same as one JSON document; of an end what ended, and its gaps.
[[nodiscard]] Value::Map sample_document(const Sample& sample);
/// Lines of stdout, one a gap.
void print_gaps(const Sample& sample);

}  // namespace tendon::cli
