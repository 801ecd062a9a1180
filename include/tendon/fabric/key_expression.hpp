// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/limits.hpp>
#include <utility>

namespace tendon {
inline namespace v0 {

/// A set of keys, in Zenoh's language, that a subscriber names. A key is the set of itself.
///
/// Example:
///   const KeyExpression all = KeyExpression::canonize("robot/**/*").value();
///   std::cout << all.text() << '\n';  // "robot/*/**"
///   const KeyExpression key = KeyExpression::parse("robot/arm/imu").value();
///   if (key.is_key() && all.includes(key)) std::cout << "a subscriber of these keys hears it\n";
///   Result<KeyExpression> wrong = KeyExpression::parse("robot//imu");
///   if (!wrong) std::cerr << wrong.error().message() << '\n';  // the place, and the rule
///
/// Owns:    its text.
/// Threads: a value.
/// Errors:  invalid_argument with the text, the place and the rule; limit_exceeded.
/// Blocks:  never.
/// Cost:    one string. A comparison takes no memory. Its time is at most the product of both
///          lengths, even if a stranger chose them.
///
/// A key is UTF-8 text in chunks with '/' between them. No chunk is empty, and none contains one of
/// "*$?#". Three wildcards stand for sets of keys:
///
///   *   any one chunk: "robot/*/imu"
///   **  any number of chunks, also none: "robot/**"
///   $*  any bytes inside a chunk, also none: "robot/arm$*"
///
/// A chunk that begins with '@' is verbatim: only the same chunk matches it, and no wildcard does.
/// "**" therefore excludes "@tendon/...".
///
/// Each set has one canonical text: "**" follows "*" where they stand side by side, and no wildcard
/// is repeated. Source: "Key Expressions", an RFC of eclipse-zenoh/roadmap, and the answers of the
/// crate zenoh-keyexpr 1.10.
class TENDON_API KeyExpression {
 public:
  /// Accepts the canonical text only, so that a peer has one spelling for each set.
  [[nodiscard]] static Result<KeyExpression> parse(std::string_view text);
  /// Accepts other spellings too, as people write them: "a/**/*" becomes "a/*/**".
  [[nodiscard]] static Result<KeyExpression> canonize(std::string_view text);

  /// The text. Control characters are legal in it: remove them before showing it to a person.
  [[nodiscard]] const std::string& text() const& noexcept { return text_; }
  const std::string& text() const&& = delete;
  /// True without wildcards: samples can be published on it.
  [[nodiscard]] bool is_key() const noexcept { return text_.find('*') == std::string::npos; }
  /// True if some key belongs to both.
  [[nodiscard]] bool intersects(const KeyExpression& other) const noexcept;
  /// True if every key of `other` belongs to this set. True is always right. False can be wrong if
  /// `other` contains "**", in the same cases as Zenoh's: "*/**" has all keys of "**", and answers
  /// false.
  [[nodiscard]] bool includes(const KeyExpression& other) const noexcept;

  friend bool operator==(const KeyExpression&, const KeyExpression&) = default;
  friend auto operator<=>(const KeyExpression&, const KeyExpression&) = default;

 private:
  explicit KeyExpression(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

}  // namespace v0
}  // namespace tendon

template <>
struct std::hash<tendon::KeyExpression> {
  std::size_t operator()(const tendon::KeyExpression& key) const noexcept {
    return std::hash<std::string>{}(key.text());
  }
};
