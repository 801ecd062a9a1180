// SPDX-License-Identifier: Apache-2.0
#include "cli/picture.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "core/environment.hpp"

namespace tendon::cli {
namespace {

struct Colour {
  std::uint64_t red = 0;
  std::uint64_t green = 0;
  std::uint64_t blue = 0;
};

/// Rows of pixels, as a camera writes them.
class Pixels {
 public:
  Pixels(const std::byte* data, std::int64_t height, std::int64_t width, std::int64_t channels)
      : data_(data), height_(height), width_(width), channels_(channels) {
    // Neither side has more cells than pixels, or more cells than fit.
    const std::int64_t longest = std::max(height, width);
    const auto scaled = [&](std::int64_t side) {
      return longest <= kMostPictureCells
                 ? side
                 : std::max<std::int64_t>(
                       static_cast<std::int64_t>(static_cast<double>(side) * kMostPictureCells /
                                                 static_cast<double>(longest)),
                       1);
    };
    rows_ = scaled(height);
    columns_ = scaled(width);
  }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }

  /// The mean of the pixels of a cell.
  [[nodiscard]] Colour cell(std::int64_t row, std::int64_t column) const {
    const auto [top, bottom] = part(row, rows_, height_);
    const auto [left, right] = part(column, columns_, width_);
    Colour sum;
    for (std::int64_t y = top; y < bottom; ++y) {
      const std::byte* at = data_ + (y * width_ + left) * channels_;
      for (std::int64_t x = left; x < right; ++x, at += channels_) {
        const Colour one = pixel(at);
        sum.red += one.red;
        sum.green += one.green;
        sum.blue += one.blue;
      }
    }
    const auto count = static_cast<std::uint64_t>((bottom - top) * (right - left));
    return {sum.red / count, sum.green / count, sum.blue / count};
  }

 private:
  struct Part {
    std::int64_t first;
    std::int64_t behind;
  };
  /// The range of pixels of cell `index`, where `length` pixels make `count` cells. No product
  /// overflows for a size that fits into memory: `count` is at most kMostPictureCells.
  [[nodiscard]] static Part part(std::int64_t index, std::int64_t count, std::int64_t length) {
    return {index * length / count, (index + 1) * length / count};
  }
  /// A transparent pixel is dark.
  [[nodiscard]] Colour pixel(const std::byte* at) const {
    const auto value = [&](std::int64_t channel) {
      return std::to_integer<std::uint64_t>(at[channel]);
    };
    if (channels_ == 1) return {value(0), value(0), value(0)};
    if (channels_ == 3) return {value(0), value(1), value(2)};
    const std::uint64_t alpha = value(3);
    return {value(0) * alpha / 255, value(1) * alpha / 255, value(2) * alpha / 255};
  }

  const std::byte* data_;
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t channels_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

std::string in_colour(int ground, const Colour& colour) {
  return fmt::format("\x1b[{};2;{};{};{}m", ground, colour.red, colour.green, colour.blue);
}

}  // namespace

bool stdout_shows_pictures() {
  return isatty(STDOUT_FILENO) == 1 && detail::environment_variable("NO_COLOR").empty() &&
         detail::environment_variable("TERM") != "dumb";
}

std::optional<std::string> picture_of(const Tensor& tensor) {
  const auto& shape = tensor.shape();
  if (tensor.dtype() != DType::u8 || tensor.device() != cpu() || !tensor.is_contiguous() ||
      tensor.element_count() == 0 || (shape.size() != 2 && shape.size() != 3))
    return std::nullopt;
  const std::int64_t channels = shape.size() == 2 ? 1 : shape[2];
  if (channels != 1 && channels != 3 && channels != 4) return std::nullopt;
  constexpr int kForeground = 38;
  constexpr int kBackground = 48;
  const Pixels pixels(tensor.data(), shape[0], shape[1], channels);
  std::string text;
  for (std::int64_t row = 0; row < pixels.rows(); row += 2) {
    text += "  ";
    for (std::int64_t column = 0; column < pixels.columns(); ++column) {
      text += in_colour(kForeground, pixels.cell(row, column));
      if (row + 1 < pixels.rows()) text += in_colour(kBackground, pixels.cell(row + 1, column));
      text += "\u2580";
    }
    text += "\x1b[0m\n";
  }
  return text;
}

}  // namespace tendon::cli
