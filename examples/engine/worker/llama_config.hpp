// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/safetensors.hpp>

namespace engine {

/// The sizes of a Llama-type decoder, as config.py writes them into the header of the converted
/// file.
struct LlamaConfig {
  std::uint32_t layers = 0;
  std::uint32_t width = 0;  ///< of a row between layers [elements]
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t ffn_width = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context = 0;  ///< [tokens]
  double rope_base = 0;
  double rms_eps = 0;

  [[nodiscard]] std::uint32_t head_width() const { return width / heads; }
  /// Heads that share one head of keys and values.
  [[nodiscard]] std::uint32_t heads_of_a_key() const { return heads / kv_heads; }

  /// Errors: corrupt_data, naming the missing or impossible field.
  [[nodiscard]] static tendon::Result<LlamaConfig> parse(std::string_view json);
  /// Reads the header of a converted file.
  [[nodiscard]] static tendon::Result<LlamaConfig> of(const tendon::SafetensorsHeader& header);
};

}  // namespace engine
