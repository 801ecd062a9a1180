// SPDX-License-Identifier: Apache-2.0
#include "worker/llama_config.hpp"

#include <algorithm>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>
#include <tendon/tensor/value.hpp>

namespace engine {
namespace {

using tendon::Result;
using tendon::Value;

// No size of a model is larger, and products of two fit in 64 bits.
constexpr double kMaxSize = 1U << 30;

tendon::Error wrong_config(const std::string& text) {
  return {tendon::ErrorCode::corrupt_data, "engine.config",
          "config of the checkpoint: " + text + "; convert the weights again"};
}

/// More than 0.
Result<double> number_of(const Value& config, const std::string& name) {
  const Value* value = config.find(name);
  if (value == nullptr) return wrong_config(name + " is missing");
  const bool is_number = value->kind() == Value::Kind::i64 || value->kind() == Value::Kind::u64 ||
                         value->kind() == Value::Kind::f64;
  if (!is_number || !(value->as_f64() > 0)) {
    return wrong_config(name + " is no number that is more than 0");
  }
  return value->as_f64();
}

Result<std::uint32_t> size_of(const Value& config, const std::string& name) {
  TENDON_TRY(number, number_of(config, name));
  if (number > kMaxSize || number != static_cast<std::uint32_t>(number)) {
    return wrong_config(name + " is no whole number of at most 2^30");
  }
  return static_cast<std::uint32_t>(number);
}

}  // namespace

Result<LlamaConfig> LlamaConfig::parse(std::string_view json) {
  TENDON_TRY(said, tendon::parse_json(tendon::as_bytes(json)));
  LlamaConfig config;
  TENDON_TRY(layers, size_of(said, "layers"));
  config.layers = layers;
  TENDON_TRY(width, size_of(said, "width"));
  config.width = width;
  TENDON_TRY(heads, size_of(said, "heads"));
  config.heads = heads;
  TENDON_TRY(kv_heads, size_of(said, "kv_heads"));
  config.kv_heads = kv_heads;
  TENDON_TRY(ffn_width, size_of(said, "ffn_width"));
  config.ffn_width = ffn_width;
  TENDON_TRY(vocabulary, size_of(said, "vocabulary"));
  config.vocabulary = vocabulary;
  TENDON_TRY(context, size_of(said, "context"));
  config.context = context;
  TENDON_TRY(rope_base, number_of(said, "rope_base"));
  config.rope_base = rope_base;
  TENDON_TRY(rms_eps, number_of(said, "rms_eps"));
  config.rms_eps = rms_eps;
  if (width % heads != 0 || config.head_width() % 2 != 0) {
    return wrong_config(std::to_string(heads) + " heads have a width of " + std::to_string(width) +
                        "; legal is a whole, even number for each head");
  }
  if (heads % kv_heads != 0) {
    return wrong_config(std::to_string(heads) + " heads share " + std::to_string(kv_heads) +
                        " heads of keys; legal is as many for each");
  }
  return config;
}

Result<LlamaConfig> LlamaConfig::of(const tendon::SafetensorsHeader& header) {
  const auto config = std::ranges::find(
      header.metadata, "config", [](const auto& each) { return std::string_view(each.first); });
  if (config == header.metadata.end()) return wrong_config("it is missing");
  return parse(config->second);
}

}  // namespace engine
