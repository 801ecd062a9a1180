// SPDX-License-Identifier: Apache-2.0
// A small picture of a tensor that may be an image, for a terminal.
#pragma once

#include <optional>
#include <string>
#include <tendon/tensor/tensor.hpp>

namespace tendon::cli {

/// Whether stdout is a terminal that shows colours. NO_COLOR (not empty) and TERM=dumb say that it
/// does not.
[[nodiscard]] bool stdout_shows_pictures();

/// Draws lines of half blocks in the colours of their pixels, at most kMostPictureCells wide and
/// high. Returns nothing for a tensor that is not u8 of shape [h, w] or [h, w, 1
/// 3
/// 4], in order, on the CPU. Every pixel counts: each block has the mean of its pixels.
[[nodiscard]] std::optional<std::string> picture_of(const Tensor& tensor);

/// A line of text shows two rows of cells.
inline constexpr std::int64_t kMostPictureCells = 48;

}  // namespace tendon::cli
