// SPDX-License-Identifier: Apache-2.0
#include "worker/llama_config.hpp"

#include <algorithm>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>
#include <tendon/tensor/value.hpp>
#include <utility>

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

/// Returns a number above 0.
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
  constexpr std::pair<const char*, std::uint32_t LlamaConfig::*> kSizes[] = {
      {"layers", &LlamaConfig::layers},       {"width", &LlamaConfig::width},
      {"heads", &LlamaConfig::heads},         {"kv_heads", &LlamaConfig::kv_heads},
      {"ffn_width", &LlamaConfig::ffn_width}, {"vocabulary", &LlamaConfig::vocabulary},
      {"context", &LlamaConfig::context}};
  for (const auto& [name, member] : kSizes) {
    TENDON_TRY(size, size_of(said, name));
    config.*member = size;
  }
  TENDON_TRY(rope_base, number_of(said, "rope_base"));
  config.rope_base = rope_base;
  TENDON_TRY(rms_eps, number_of(said, "rms_eps"));
  config.rms_eps = rms_eps;
  if (config.width % config.heads != 0 || config.head_width() % 2 != 0) {
    return wrong_config(std::to_string(config.heads) + " heads have a width of " +
                        std::to_string(config.width) +
                        "; legal is a whole, even number for each head");
  }
  if (config.heads % config.kv_heads != 0) {
    return wrong_config(std::to_string(config.heads) + " heads share " +
                        std::to_string(config.kv_heads) +
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
