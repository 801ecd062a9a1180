// SPDX-License-Identifier: Apache-2.0
#include "controller/front_messages.hpp"

#include <cstdint>
#include <limits>
#include <utility>

namespace engine {
namespace {

using tendon::Value;

constexpr std::size_t kMaxIdBytes = 64;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxLogprobs = 20;

/// Reads the fields of one object and reports the first invalid one.
class Fields {
 public:
  Fields(const Value& object, std::string_view path) : object_(object), path_(path) {}

  [[nodiscard]] const std::string& fault() const { return fault_; }

  /// nullopt if it is absent, null, or invalid.
  [[nodiscard]] std::optional<double> number(std::string_view name, double least, double most) {
    const Value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (is_whole(*value) || value->kind() == Value::Kind::f64) {
      const double number = value->as_f64();
      if (number >= least && number <= most) return number;  // false for a NaN
    }
    wrong(name, *value, "a number from " + text_of(least) + " to " + text_of(most));
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> whole(std::string_view name, std::uint64_t least,
                                                   std::uint64_t most) {
    const Value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (const auto number = whole_of(*value); number && *number >= least && *number <= most) {
      return number;
    }
    wrong(name, *value,
          "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return std::nullopt;
  }
  [[nodiscard]] std::optional<bool> boolean(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->kind() == Value::Kind::boolean) return value->as_bool();
    wrong(name, *value, "true or false");
    return std::nullopt;
  }
  [[nodiscard]] std::string text(std::string_view name, std::size_t most_bytes) {
    const Value* value = find(name);
    if (value != nullptr && value->kind() == Value::Kind::string) {
      const std::string& text = value->as_string();
      if (!text.empty() && text.size() <= most_bytes) return text;
    }
    wrong(name, value == nullptr ? Value() : *value,
          "a text of 1 to " + std::to_string(most_bytes) + " bytes");
    return {};
  }
  [[nodiscard]] std::vector<std::uint32_t> tokens(std::string_view name) {
    std::vector<std::uint32_t> found;
    const Value* value = find(name);
    if (value != nullptr && value->kind() == Value::Kind::list) {
      for (const Value& each : value->as_list()) {
        const auto token = whole_of(each);
        if (!token || *token > kMax32) {
          wrong(name, each, "a list of token numbers");
          return {};
        }
        found.push_back(static_cast<std::uint32_t>(*token));
      }
      return found;
    }
    wrong(name, value == nullptr ? Value() : *value, "a list of token numbers");
    return found;
  }
  void need(std::string_view name) {
    if (find(name) == nullptr) wrong(name, Value(), "a value: it has no default");
  }

 private:
  [[nodiscard]] const Value* find(std::string_view name) const {
    const Value* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  static bool is_whole(const Value& value) {
    return value.kind() == Value::Kind::i64 || value.kind() == Value::Kind::u64;
  }
  static std::optional<std::uint64_t> whole_of(const Value& value) {
    if (!is_whole(value)) return std::nullopt;
    if (value.kind() == Value::Kind::i64 && value.as_i64() < 0) return std::nullopt;
    return value.as_u64();
  }
  static std::string text_of(double number) {
    std::string text = std::to_string(number);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    return text;
  }
  void wrong(std::string_view name, const Value& value, const std::string& legal) {
    if (!fault_.empty()) return;
    fault_ = std::string(path_) + std::string(name) + " is " +
             (value.is_null() ? "missing" : "a wrong " + std::string(to_string(value.kind()))) +
             "; legal is " + legal;
  }

  const Value& object_;
  std::string_view path_;
  std::string fault_;
};

/// Returns the fault, or an empty text.
std::string read_sampling(const Value& said, v1::SamplingParams& params) {
  if (said.kind() != Value::Kind::map) return "sampling is not an object; legal is one";
  Fields fields(said, "sampling.");
  const auto real = [&](std::string_view name, double least, double most, auto set) {
    if (const auto value = fields.number(name, least, most)) {
      (params.*set)(static_cast<float>(*value));
    }
  };
  const auto whole = [&](std::string_view name, std::uint64_t least, std::uint64_t most, auto set) {
    if (const auto value = fields.whole(name, least, most)) (params.*set)(*value);
  };
  using Params = v1::SamplingParams;
  real("temperature", 0, 100, &Params::set_temperature);
  real("top_p", 0, 1, &Params::set_top_p);
  real("min_p", 0, 1, &Params::set_min_p);
  real("presence_penalty", -2, 2, &Params::set_presence_penalty);
  real("frequency_penalty", -2, 2, &Params::set_frequency_penalty);
  real("repetition_penalty", 0.01, 100, &Params::set_repetition_penalty);
  whole("top_k", 0, kMax32, &Params::set_top_k);
  whole("seed", 0, std::numeric_limits<std::uint64_t>::max(), &Params::set_seed);
  whole("max_tokens", 1, kMax32, &Params::set_max_tokens);
  whole("min_tokens", 0, kMax32, &Params::set_min_tokens);
  whole("logprobs", 0, kMaxLogprobs, &Params::set_logprobs);
  if (const auto ignore = fields.boolean("ignore_eos")) params.set_ignore_eos(*ignore);
  fields.need("max_tokens");
  return fields.fault();
}

std::string json_of(Value::Map fields) {
  // All its texts are from JSON or this program, so they are UTF-8.
  auto json = tendon::to_json(Value(std::move(fields)));
  return json.has_value() ? *std::move(json)
                          : R"({"kind":"refused","id":null,"code":"malformed",)"
                            R"("message":"a message of the controller is too long"})";
}

std::string_view reason_of(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "failed";
  }
}

Value::Map map_of(const NewTokens& told) {
  Value::List tokens(told.tokens.begin(), told.tokens.end());
  Value::Map fields{{"kind", "tokens"}, {"id", told.id}, {"tokens", std::move(tokens)}};
  if (told.logprobs.empty()) return fields;
  Value::List logprobs;
  for (const v1::TokenLogprobs& each : told.logprobs) {
    Value::List top;
    for (const v1::TokenLogprob& one : each.top()) {
      top.emplace_back(Value::List{one.token_id(), one.logprob()});
    }
    logprobs.emplace_back(Value::Map{{"logprob", each.logprob()}, {"top", std::move(top)}});
  }
  fields.emplace_back("logprobs", std::move(logprobs));
  return fields;
}

Value::Map map_of(const Done& done) {
  Value::Map fields{{"kind", "done"}, {"id", done.id}, {"reason", reason_of(done.reason)}};
  if (!done.failure.code.empty()) {
    fields.emplace_back("error",
                        Value::Map{{"code", done.failure.code}, {"message", done.failure.message}});
  }
  fields.emplace_back("usage", Value::Map{{"prompt_tokens", done.prompt_tokens},
                                          {"completion_tokens", done.completion_tokens}});
  return fields;
}

}  // namespace

FrontMessage parse_front_message(tendon::Bytes json) {
  auto parsed = tendon::parse_json(json);
  if (!parsed.has_value()) return Malformed{std::nullopt, parsed.error().detail};
  Fields fields(*parsed, "");
  const std::string kind = fields.text("kind", kMaxIdBytes);
  std::string id = fields.text("id", kMaxIdBytes);
  if (!fields.fault().empty()) {
    return Malformed{id.empty() ? std::nullopt : std::optional(std::move(id)), fields.fault()};
  }
  if (kind == "cancel") return Cancel{std::move(id)};
  if (kind == "finish") return Finish{std::move(id)};
  if (kind != "submit") {
    return Malformed{std::move(id), "kind is unknown; legal is submit, cancel or finish"};
  }
  Request request{.id = id, .prompt = fields.tokens("prompt"), .sampling = {}};
  const Value* sampling = parsed->find("sampling");
  std::string fault = fields.fault();
  if (fault.empty()) {
    fault = sampling == nullptr ? "sampling is missing; legal is an object"
                                : read_sampling(*sampling, request.sampling);
  }
  if (!fault.empty()) return Malformed{std::move(id), std::move(fault)};
  return Submit{std::move(request)};
}

std::string accepted_message(std::string_view id) {
  return json_of({{"kind", "accepted"}, {"id", id}});
}

std::string refused_message(const std::optional<std::string>& id, const Refusal& refusal) {
  return json_of({{"kind", "refused"},
                  {"id", id ? Value(*id) : Value()},
                  {"code", to_string(refusal.code)},
                  {"message", refusal.message}});
}

std::string message_of(const Notice& notice) {
  return std::visit([](const auto& each) { return json_of(map_of(each)); }, notice);
}

}  // namespace engine
