// SPDX-License-Identifier: Apache-2.0
#include "program/flags.hpp"

#include <charconv>
#include <system_error>
#include <utility>

namespace engine {

tendon::Error wrong_flag(const std::string& text) {
  return {tendon::ErrorCode::invalid_argument, "engine.flags", text};
}

tendon::Result<Flags> flags_of(Flags defaults, const std::vector<std::string>& words) {
  Flags flags = std::move(defaults);
  for (std::size_t at = 0; at < words.size(); at += 2) {
    const auto flag = flags.find(words[at]);
    if (flag == flags.end()) {
      std::string legal;
      for (const auto& [name, value] : flags) legal += " " + name;
      return wrong_flag("'" + words[at] + "' is no flag; legal are" + legal);
    }
    if (at + 1 == words.size()) return wrong_flag(words[at] + " needs a value behind it");
    flag->second = words[at + 1];
  }
  return flags;
}

tendon::Result<std::uint32_t> number_of(const Flags& flags, std::string_view name,
                                        std::uint32_t least, std::uint32_t most) {
  const std::string& text = flags.find(name)->second;
  std::uint32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < least ||
      number > most) {
    return wrong_flag(std::string(name) + " is '" + text + "'; legal is a whole number from " +
                      std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

}  // namespace engine
