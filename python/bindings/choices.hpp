// SPDX-License-Identifier: Apache-2.0
// Maps words of Python to enumerators of C++.
#pragma once

#include <string>
#include <tendon/core/words.hpp>

#include "errors.hpp"

namespace tendon::python {

/// Returns the enumerator of the argument `what`; any other word is a ValueError that lists the
/// legal words.
template <class Enum>
[[nodiscard]] Enum word_from(const char* what, const std::string& word) {
  if (const auto value = parse_word<Enum>(word)) return *value;
  raise_value_error(std::string(what) + " is '" + word + "'; legal are " + legal_words<Enum>("'"));
}

/// The `mode` of a receive: a view of shared memory or a copy.
enum class ReadMode : std::uint8_t { view_or_copy, copy };
TENDON_WORDS(ReadMode, view_or_copy, copy);
inline constexpr const char* kViewOrCopy = "view_or_copy";
/// True if the caller wants a copy of its own.
[[nodiscard]] inline bool wants_copy_from(const std::string& word) {
  return word_from<ReadMode>("mode", word) == ReadMode::copy;
}

}  // namespace tendon::python
