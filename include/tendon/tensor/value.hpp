// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace tendon {
inline namespace v0 {

/// Non-tensor data: the kinds of JSON, with integers kept apart from floats.
///
/// Example:
///   Value run(Value::Map{{"name", "first"}, {"step", 7}, {"rates", Value::List{0.1, 0.01}}});
///   if (const Value* step = run.find("step")) std::cout << step->as_i64() << '\n';
///   const std::string json = to_json(run).value();
///   const Value again = parse_json(as_bytes(json)).value();
///   if (again == run) std::cout << again << '\n';
///
/// Owns:    its text and its children.
/// Threads: a value.
/// Errors:  the as_... accessors throw wrong_kind, naming the actual kind; find returns nullptr.
/// Blocks:  never.
/// Cost:    allocates for text, lists and maps.
class TENDON_API Value {
 public:
  enum class Kind : std::uint8_t { null, boolean, i64, u64, f64, string, list, map };
  using List = std::vector<Value>;
  /// Keys in the order in which they were added; no key twice (to_json refuses it).
  using Map = std::vector<std::pair<std::string, Value>>;

  Value() = default;
  Value(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): `set("info/step", 7)` must work
  template <class T>
    requires std::same_as<T, bool>
  Value(T value) : state_(value) {}  // NOLINT(google-explicit-constructor)
  /// Kept as i64 where it fits, so that equal numbers are equal values.
  template <class T>
    requires(std::integral<T> && !std::same_as<T, bool>)
  Value(T value) {  // NOLINT(google-explicit-constructor)
    if (std::in_range<std::int64_t>(value))
      state_ = static_cast<std::int64_t>(value);
    else
      state_ = static_cast<std::uint64_t>(value);
  }
  template <class T>
    requires std::floating_point<T>
  Value(T value) : state_(static_cast<double>(value)) {}  // NOLINT(google-explicit-constructor)
  Value(const char* text) : state_(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Value(std::string_view text)
      : state_(std::string(text)) {}                    // NOLINT(google-explicit-constructor)
  Value(std::string text) : state_(std::move(text)) {}  // NOLINT(google-explicit-constructor)
  Value(List items) : state_(std::move(items)) {}       // NOLINT(google-explicit-constructor)
  Value(Map entries) : state_(std::move(entries)) {}    // NOLINT(google-explicit-constructor)

  [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(state_.index()); }
  [[nodiscard]] bool is_null() const noexcept { return kind() == Kind::null; }

  [[nodiscard]] bool as_bool() const;
  /// Throws wrong_kind too for an integer that does not fit.
  [[nodiscard]] std::int64_t as_i64() const;
  [[nodiscard]] std::uint64_t as_u64() const;
  /// Accepts integers too.
  [[nodiscard]] double as_f64() const;
  [[nodiscard]] const std::string& as_string() const&;
  [[nodiscard]] const List& as_list() const&;
  [[nodiscard]] const Map& as_map() const&;
  [[nodiscard]] std::string as_string() &&;
  [[nodiscard]] List as_list() &&;
  [[nodiscard]] Map as_map() &&;

  /// The value of `key` if this is a map that has it, else nullptr.
  [[nodiscard]] const Value* find(std::string_view key) const&;
  const Value* find(std::string_view key) && = delete;

  /// Same kinds, same order of keys, same numbers; NaN equals NaN, and 0.0 does not equal -0.0.
  friend TENDON_API bool operator==(const Value& a, const Value& b);

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, List, Map>
      state_;
};

[[nodiscard]] TENDON_API std::string_view to_string(Value::Kind kind);

/// Writes one line of UTF-8 JSON: key order kept, integers i64 or u64, floats always with a point
/// or an exponent. A float has as few digits as read back to the same double; NaN and infinities
/// are `{"$float": "nan" | "inf" | "-inf"}`. invalid_argument for text that is not UTF-8, for a key
/// twice and for a map whose only key is "$float"; limit_exceeded beyond kMaxDepth or
/// kMaxValuesBytes.
[[nodiscard]] TENDON_API Result<std::string> to_json(const Value& value);
/// Reads the text of to_json(), and any other JSON object whose integers fit in 64 bits. The text
/// is not trusted: corrupt_data for anything but one object, limit_exceeded beyond kMaxDepth or
/// kMaxValuesBytes, counted before anything is stored.
[[nodiscard]] TENDON_API Result<Value> parse_json(Bytes json);
/// Prints JSON for people: to_json() without its limits, non-finite floats as they are.
TENDON_API std::ostream& operator<<(std::ostream& out, const Value& value);

}  // namespace v0
}  // namespace tendon
