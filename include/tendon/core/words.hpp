// SPDX-License-Identifier: Apache-2.0
// The words of an enum, written once, beside it. They serve printed text, flags of the command,
// environment variables, and string arguments in Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tendon {
inline namespace v0 {

/// One enumerator and its word.
template <class Enum>
struct Word {
  Enum value;
  std::string_view text;
};

namespace detail {

/// The enumerators with their names. `texts` holds the names as the preprocessor writes them:
/// "drop_oldest, block".
template <class Enum, std::size_t kCount>
[[nodiscard]] consteval std::array<Word<Enum>, kCount> words_from(const Enum (&values)[kCount],
                                                                  std::string_view texts) {
  std::array<Word<Enum>, kCount> words{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::string_view word = texts.substr(0, texts.find(','));
    words[i] = {values[i], word};
    if (word.size() < texts.size()) texts.remove_prefix(word.size() + 2);
  }
  return words;
}

}  // namespace detail

/// The table of an enum, by its words_of().
template <class Enum>
inline constexpr auto kWords = words_of(Enum{});

/// The word of `value`; "unknown" for a number that is no enumerator.
template <class Enum>
[[nodiscard]] constexpr std::string_view word_of(Enum value) {
  for (const Word<Enum>& word : kWords<Enum>)
    if (word.value == value) return word.text;
  return "unknown";
}

/// The enumerator of a word: parse_word<Transport>("shm"). "auto" is read as "automatic", because
/// no enumerator can be called auto.
template <class Enum>
[[nodiscard]] constexpr std::optional<Enum> parse_word(std::string_view text) {
  if (text == "auto") text = "automatic";
  for (const Word<Enum>& word : kWords<Enum>)
    if (word.text == text) return word.value;
  return std::nullopt;
}

/// The enumerator with this number, which a peer may have sent.
template <class Enum>
[[nodiscard]] constexpr std::optional<Enum> enumerator_from(std::uint64_t number) {
  for (const Word<Enum>& word : kWords<Enum>)
    if (static_cast<std::uint64_t>(word.value) == number) return word.value;
  return std::nullopt;
}

/// "automatic, shm, tcp", each between two `quote`: for the error about any other word.
template <class Enum>
[[nodiscard]] std::string legal_words(std::string_view quote = {}) {
  std::string all;
  for (const Word<Enum>& word : kWords<Enum>)
    (all += all.empty() ? "" : ", ").append(quote).append(word.text).append(quote);
  return all;
}

}  // namespace v0
}  // namespace tendon

/// Beside an enum whose words are its enumerators: TENDON_WORDS(Overflow, drop_oldest, block);
/// defines words_of(), the table, and to_string() for it.
#define TENDON_WORDS(Enum, ...)                                             \
  [[nodiscard]] consteval auto words_of(Enum) {                             \
    using enum Enum;                                                        \
    return ::tendon::detail::words_from<Enum>({__VA_ARGS__}, #__VA_ARGS__); \
  }                                                                         \
  [[nodiscard]] constexpr std::string_view to_string(Enum value) {          \
    return ::tendon::word_of(value);                                        \
  }                                                                         \
  static_assert(!words_of(Enum{}).empty())
