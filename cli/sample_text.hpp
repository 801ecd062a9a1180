// SPDX-License-Identifier: Apache-2.0
// The texts in which `tendon topic echo` shows a sample, and `tendon call` an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tendon/fabric/sample.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// Statistics over all elements, except those that are not numbers.
struct TensorStatistics {
  double min = 0;
  double max = 0;
  double mean = 0;
};

/// Returns nothing for a tensor without numbers, or of a type that is only moved (8-bit floats,
/// complex).
[[nodiscard]] std::optional<TensorStatistics> statistics_of(const Tensor& tensor);

/// A line for each tensor, with its statistics, and for each value; a line break in front of each.
[[nodiscard]] std::string describe_tensors(const TensorDict& tensors);
/// The same as a JSON document.
[[nodiscard]] Value::Map tensors_document(const TensorDict& dict);

/// Whether a tensor that may be an image has a small picture below its line.
enum class Pictures : std::uint8_t { none, blocks };

/// Prints lines: the sample, its gaps, each tensor with its statistics, each value.
void print_sample(const Sample& sample, Pictures pictures);
/// The same as one JSON document; for an end, what ended and its gaps.
[[nodiscard]] Value::Map sample_document(const Sample& sample);
/// Prints one line to stdout for each gap.
void print_gaps(const Sample& sample);

}  // namespace tendon::cli
