// SPDX-License-Identifier: Apache-2.0
// A small picture of a tensor that may be one, for a terminal.
#pragma once

#include <optional>
#include <string>
#include <tendon/tensor/tensor.hpp>

namespace tendon::cli {

/// Is stdout a terminal that shows colours? NO_COLOR (not empty) and TERM=dumb say that it is none.
[[nodiscard]] bool stdout_shows_pictures();

/// Lines of half blocks in the colours of their pixels, kMostPictureCells wide and high at most.
/// Nothing for what is not u8 of shape [h, w] or [h, w, 1 | 3 | 4], in order,
/// on the CPU. Every pixel counts: each block has the mean of those that it stands for.
[[nodiscard]] std::optional<std::string> picture_of(const Tensor& tensor);

/// A line of text has two rows of cells.
inline constexpr std::int64_t kMostPictureCells = 48;

}  // namespace tendon::cli
