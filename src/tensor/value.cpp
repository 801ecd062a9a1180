// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/value.hpp>
#include <unordered_set>

#include "core/text.hpp"
#include "tensor/c_numbers.hpp"
#include "tensor/json.hpp"
#include "tensor/text.hpp"

namespace tendon::v0 {
namespace {

constexpr std::string_view kFloatKey = "$float";

[[noreturn]] void throw_kind(Value::Kind is, std::string_view wanted) {
  throw Exception(
      Error{ErrorCode::wrong_kind, "tensor.value",
            "this value is " + std::string(to_string(is)) + ", not " + std::string(wanted)});
}

std::string_view non_finite_name(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::optional<double> non_finite_from_name(std::string_view name) {
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

void append_finite(std::string& out, double value) {
  const std::string text = detail::number_text(value);
  out += text;
  // Without a point or exponent it would be read back as an integer.
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

// Builds a Value from the parser's events. It never recurses: nesting lives in `open_`.
class ValueHandler {
 public:
  ValueHandler(std::string_view what, detail::JsonLimits limits) : what_(what), limits_(limits) {}

  bool null() { return add(Value(nullptr)); }
  bool boolean(bool value) { return add(Value(value)); }
  bool number_integer(std::int64_t value) { return add(Value(value)); }
  bool number_unsigned(std::uint64_t value) { return add(Value(value)); }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) {
      return fail(ErrorCode::corrupt_data, "the integer " + text + " does not fit in 64 bits");
    }
    return add(Value(value));
  }
  bool string(std::string& text) { return add(Value(std::move(text))); }
  bool binary(std::vector<std::uint8_t>&) {
    return fail(ErrorCode::corrupt_data, "JSON has no binary values");
  }
  bool start_object(std::size_t) { return open(Value(Value::Map{})); }
  bool key(std::string& text) {
    if (!open_.back().keys.insert(text).second) {
      return fail(ErrorCode::corrupt_data, "the key " + detail::quote_text(text) + " comes twice");
    }
    open_.back().key = std::move(text);
    return true;
  }
  bool end_object() {
    Level level = std::move(open_.back());
    open_.pop_back();
    if (level.map.size() == 1 && level.map.front().first == kFloatKey) {
      const Value& name = level.map.front().second;
      const auto number = name.kind() == Value::Kind::string
                              ? non_finite_from_name(name.as_string())
                              : std::nullopt;
      if (!number) {
        return fail(ErrorCode::corrupt_data, "\"$float\" must be \"nan\", \"inf\" or \"-inf\"");
      }
      return place(Value(*number));
    }
    return place(Value(std::move(level.map)));
  }
  bool start_array(std::size_t) { return open(Value(Value::List{})); }
  bool end_array() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return place(Value(std::move(level.list)));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) {
    // The library repeats the offending text as it is: only its position is safe to show.
    const bool out_of_range = error.id == 406;
    return fail(ErrorCode::corrupt_data,
                (out_of_range ? "a number beyond the range of a double at byte "
                              : "no valid JSON at byte ") +
                    std::to_string(position));
  }

  [[nodiscard]] Result<Value> take() && {
    if (error_) return *std::move(error_);
    return std::move(root_);
  }

 private:
  struct Level {
    bool is_map = false;
    Value::Map map;
    Value::List list;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool fail(ErrorCode code, std::string detail) {
    error_ = Error{code, "tensor.json", std::string(what_) + ": " + std::move(detail)};
    return false;
  }
  bool count() {
    if (++value_count_ <= limits_.max_values) return true;
    return fail(ErrorCode::limit_exceeded,
                "more than " + std::to_string(limits_.max_values) + " values");
  }
  bool open(const Value& container) {
    if (open_.size() >= limits_.max_depth) {
      return fail(ErrorCode::limit_exceeded,
                  "nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    if (!count()) return false;
    open_.emplace_back().is_map = container.kind() == Value::Kind::map;
    return true;
  }
  bool add(Value value) { return count() && place(std::move(value)); }
  bool place(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is_map)
      open_.back().map.emplace_back(std::move(open_.back().key), std::move(value));
    else
      open_.back().list.push_back(std::move(value));
    return true;
  }

  std::string_view what_;
  detail::JsonLimits limits_;
  std::vector<Level> open_;
  Value root_;
  std::size_t value_count_ = 0;
  std::optional<Error> error_;
};

void print(std::ostream& out, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null:
      out << "null";
      return;
    case Value::Kind::boolean:
      out << (value.as_bool() ? "true" : "false");
      return;
    case Value::Kind::i64:
      out << value.as_i64();
      return;
    case Value::Kind::u64:
      out << value.as_u64();
      return;
    case Value::Kind::f64: {
      std::string text;
      if (std::isfinite(value.as_f64()))
        append_finite(text, value.as_f64());
      else
        text = non_finite_name(value.as_f64());
      out << text;
      return;
    }
    case Value::Kind::string:
      out << detail::quote_text(value.as_string());
      return;
    case Value::Kind::list: {
      const char* separator = "";
      out << "[";
      for (const Value& item : value.as_list()) {
        out << separator;
        print(out, item);
        separator = ", ";
      }
      out << "]";
      return;
    }
    case Value::Kind::map: {
      const char* separator = "";
      out << "{";
      for (const auto& [key, item] : value.as_map()) {
        out << separator << detail::quote_text(key) << ": ";
        print(out, item);
        separator = ", ";
      }
      out << "}";
      return;
    }
  }
}

}  // namespace

bool Value::as_bool() const {
  if (const auto* value = std::get_if<bool>(&state_)) return *value;
  throw_kind(kind(), "a bool");
}

std::int64_t Value::as_i64() const {
  if (const auto* value = std::get_if<std::int64_t>(&state_)) return *value;
  throw_kind(kind(), "an integer from -2^63 to 2^63 - 1");
}

std::uint64_t Value::as_u64() const {
  if (const auto* value = std::get_if<std::uint64_t>(&state_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&state_); value != nullptr && *value >= 0)
    return static_cast<std::uint64_t>(*value);
  throw_kind(kind(), "an integer from 0 to 2^64 - 1");
}

double Value::as_f64() const {
  if (const auto* value = std::get_if<double>(&state_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&state_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&state_)) return static_cast<double>(*value);
  throw_kind(kind(), "a number");
}

const std::string& Value::as_string() const& {
  if (const auto* value = std::get_if<std::string>(&state_)) return *value;
  throw_kind(kind(), "a string");
}
const Value::List& Value::as_list() const& {
  if (const auto* value = std::get_if<List>(&state_)) return *value;
  throw_kind(kind(), "a list");
}
const Value::Map& Value::as_map() const& {
  if (const auto* value = std::get_if<Map>(&state_)) return *value;
  throw_kind(kind(), "a map");
}
std::string Value::as_string() && { return as_string(); }
Value::List Value::as_list() && { return as_list(); }
Value::Map Value::as_map() && { return as_map(); }

const Value* Value::find(std::string_view key) const& {
  if (const auto* map = std::get_if<Map>(&state_)) {
    for (const auto& [name, value] : *map)
      if (name == key) return &value;
  }
  return nullptr;
}

bool operator==(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.kind() == Value::Kind::f64) {
    const double x = a.as_f64();
    const double y = b.as_f64();
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  }
  return a.state_ == b.state_;
}

std::string_view to_string(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::boolean:
      return "a bool";
    case Value::Kind::i64:
    case Value::Kind::u64:
      return "an integer";
    case Value::Kind::f64:
      return "a float";
    case Value::Kind::string:
      return "a string";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a map";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, const Value& value) {
  print(out, value);
  return out;
}

namespace detail {

Result<void> append_json_string(std::string& out, std::string_view text) {
  if (!is_utf8(text)) {
    return Error{ErrorCode::invalid_argument, "tensor.json",
                 "the text " + quote_text(text) + " is not UTF-8"};
  }
  out += nlohmann::json(text).dump();
  return {};
}

Result<void> append_json(std::string& out, const Value& value, std::size_t depth) {
  switch (value.kind()) {
    case Value::Kind::null:
      out += "null";
      return {};
    case Value::Kind::boolean:
      out += value.as_bool() ? "true" : "false";
      return {};
    case Value::Kind::i64:
      out += std::to_string(value.as_i64());
      return {};
    case Value::Kind::u64:
      out += std::to_string(value.as_u64());
      return {};
    case Value::Kind::f64:
      if (std::isfinite(value.as_f64()))
        append_finite(out, value.as_f64());
      else
        out += "{\"$float\":\"" + std::string(non_finite_name(value.as_f64())) + "\"}";
      return {};
    case Value::Kind::string:
      return append_json_string(out, value.as_string());
    case Value::Kind::list:
    case Value::Kind::map:
      break;
  }
  if (depth == 0) {
    return Error{ErrorCode::limit_exceeded, "tensor.json",
                 "non-tensor data nested deeper than " + std::to_string(kMaxDepth) + " levels"};
  }
  if (value.kind() == Value::Kind::list) {
    out += '[';
    for (const Value& item : value.as_list()) {
      if (&item != value.as_list().data()) out += ',';
      TENDON_CHECK(append_json(out, item, depth - 1));
    }
    out += ']';
    return {};
  }
  const Value::Map& map = value.as_map();
  if (map.size() == 1 && map.front().first == kFloatKey) {
    return Error{ErrorCode::invalid_argument, "tensor.json",
                 "a map with the one key \"$float\" means a float that is not finite"};
  }
  std::unordered_set<std::string_view> keys;
  out += '{';
  for (const auto& [key, item] : map) {
    if (!keys.insert(key).second) {
      return Error{ErrorCode::invalid_argument, "tensor.json",
                   "the key " + quote_text(key) + " comes twice in one map"};
    }
    if (keys.size() > 1) out += ',';
    TENDON_CHECK(append_json_string(out, key));
    out += ':';
    TENDON_CHECK(append_json(out, item, depth - 1));
  }
  out += '}';
  return {};
}

Result<Value> parse_json_value(std::string_view json, std::string_view what, JsonLimits limits) {
  if (json.size() > limits.max_bytes) {
    return Error{ErrorCode::limit_exceeded, "tensor.json",
                 std::string(what) + " has " + std::to_string(json.size()) +
                     " bytes; legal are up to " + std::to_string(limits.max_bytes)};
  }
  ValueHandler handler(what, limits);
  const CNumbers c_numbers;
  // The answer is in the handler: it holds an error whenever this returns false.
  (void)nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  return std::move(handler).take();
}

}  // namespace detail

Result<std::string> to_json(const Value& value) {
  if (value.kind() != Value::Kind::map) {
    return Error{
        ErrorCode::invalid_argument, "tensor.json",
        "non-tensor data travels as one map, and this is " + std::string(to_string(value.kind()))};
  }
  std::string out;
  TENDON_CHECK(detail::append_json(out, value, kMaxDepth));
  if (out.size() > kMaxValuesBytes) {
    return Error{ErrorCode::limit_exceeded, "tensor.json",
                 "non-tensor data has " + std::to_string(out.size()) +
                     " bytes as JSON; legal are up to " + std::to_string(kMaxValuesBytes)};
  }
  return out;
}

Result<Value> parse_json(Bytes json) {
  TENDON_TRY(value, detail::parse_json_value(as_text(json), "non-tensor data",
                                             {kMaxValuesBytes, kMaxDepth, kMaxValuesBytes}));
  if (value.kind() != Value::Kind::map) {
    return Error{ErrorCode::corrupt_data, "tensor.json",
                 "non-tensor data must be one JSON object, and this is " +
                     std::string(to_string(value.kind()))};
  }
  return value;
}

}  // namespace tendon::v0
