// SPDX-License-Identifier: Apache-2.0
// How a verb declares its flags with CLI11, in the words that flags have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <tendon/core/words.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>

#include "cli/verbs.hpp"

namespace tendon::cli {

/// The longest duration that a flag accepts [s].
inline constexpr double kMaxTimeoutSeconds = 1e8;

/// Reads bytes: "64K". CLI11's own validator reads "-5" as 2^64 - 5.
inline CLI::Validator size_value() {
  const CLI::AsSizeValue read(false);
  const auto checked = [read](std::string& text) {
    return text.starts_with('-') ? "'" + text + "' is negative" : read(text);
  };
  return {checked, read.get_description()};
}

/// Refuses an empty text, which a shell variable that is not set leaves behind.
inline CLI::Validator filled() {
  const auto check = [](const std::string& text) {
    return text.empty() ? std::string(
                              "the value is empty: leave the flag out, or say one (is a "
                              "variable of the shell not set?)")
                        : std::string();
  };
  return {check, ""};
}

template <class T>
using Names = std::map<std::string, T>;
inline const Names<Transport> kPaths = {{"shm", Transport::shm}, {"tcp", Transport::tcp}};

// CLI11 calls a verb's callback after it has read all of its flags. So the options live in the
// callback, and are filled by then.

/// `flag` sets `target` to the value `given`.
template <class T>
void add_switch(CLI::App* verb, const std::string& flag, T& target, T given,
                const std::string& help) {
  verb->add_flag_callback(
      flag, [&target, given] { target = given; }, help);
}

/// `flag` accepts one of `names`. `target` may be an optional.
template <class Target, class T>
void add_choice(CLI::App* verb, const std::string& flag, Target& target, const Names<T>& names,
                const std::string& help) {
  verb->add_option_function<std::string>(
          flag, [&target, &names](const std::string& name) { target = names.at(name); }, help)
      ->check(CLI::IsMember(&names));
}

/// `flag` accepts one of the words of Enum. `target` may be an optional.
template <class Enum, class Target>
void add_choice(CLI::App* verb, const std::string& flag, Target& target, const std::string& help) {
  const std::string legal = "{" + legal_words<Enum>() + "}";
  const auto check = [legal](const std::string& word) {
    return parse_word<Enum>(word) ? std::string() : word + " not in " + legal;
  };
  verb->add_option_function<std::string>(
          flag, [&target](const std::string& word) { target = parse_word<Enum>(word).value(); },
          help)
      ->check(CLI::Validator(check, legal));
}

inline void add_json(CLI::App* verb, Format& format) {
  add_switch(verb, "--json", format, Format::json, "JSON on stdout");
}

}  // namespace tendon::cli
