// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <random>
#include <string>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

/// The weights of a small transformer by names and shapes; random numbers stand for what it
/// learned.
Result<TensorDict> make_weights(std::uint64_t size_bytes, std::uint64_t seed) {
  constexpr std::int64_t kWidth = 384;
  std::mt19937_64 random(seed);
  TensorDict weights;
  std::uint64_t made_bytes = 0;
  for (int layer = 0; made_bytes < size_bytes; ++layer) {
    for (const auto& [name, shape] :
         {std::pair("attention.weight", Shape{4 * kWidth, kWidth}),
          std::pair("attention.bias", Shape{4 * kWidth}),
          std::pair("dense.weight", Shape{8 * kWidth, kWidth}),
          std::pair("dense.bias", Shape{8 * kWidth}), std::pair("norm.weight", Shape{kWidth})}) {
      TENDON_TRY(tensor, Tensor::empty(DType::f32, shape));
      for (float& weight : tensor.span<float>())
        weight = static_cast<float>(random() >> 40) / static_cast<float>(1 << 24) - 0.5F;
      made_bytes += tensor.size_bytes();
      TENDON_CHECK(
          weights.try_set(fmt::format("encoder.layer.{}.{}", layer, name), std::move(tensor)));
    }
  }
  return weights;
}

}  // namespace

int run_make_checkpoint(const std::string& file, double size_mb) {
  constexpr std::uint64_t kSeed = 20240607;
  auto weights = make_weights(static_cast<std::uint64_t>(size_mb * 1e6), kSeed);
  if (!weights) return report(weights.error(), Format::text);
  if (auto saved = save_safetensors(file, *weights, {.metadata = {{"format", "pt"}}}); !saved)
    return report(saved.error(), Format::text);
  print_line(fmt::format("{}  {} tensors  {}", file, weights->leaf_count(),
                         format_bytes(static_cast<double>(weights->size_bytes()))));
  return 0;
}

int run_compare_checkpoints(const std::string& first, const std::string& second) {
  auto a = SafetensorsFile::open(first);
  if (!a) return report(a.error(), Format::text);
  auto b = SafetensorsFile::open(second);
  if (!b) return report(b.error(), Format::text);
  const TensorDict& expected = a->tensors();
  const TensorDict& other = b->tensors();
  std::size_t equal = 0;
  for (const auto& [path, tensor] : expected) {
    const auto twin = other.find(path);
    if (twin && bitwise_equal(tensor, *twin)) {
      ++equal;
    } else {
      say(fmt::format("tendon: tensor '{}' differs", path));
    }
  }
  const bool same = equal == expected.leaf_count() && equal == other.leaf_count() &&
                    *expected.schema() == *other.schema();
  print_line(fmt::format("{} of {} tensors equal", equal, expected.leaf_count()));
  return same ? 0 : error_info(ErrorCode::schema_mismatch).exit_code;
}

}  // namespace tendon::cli
