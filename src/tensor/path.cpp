// SPDX-License-Identifier: Apache-2.0
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/path.hpp>

#include "tensor/text.hpp"

namespace tendon::v0 {
namespace {

Error path_too_long(std::size_t size_bytes) {
  return Error{ErrorCode::limit_exceeded, "tensor.path",
               "a path of " + std::to_string(size_bytes) + " bytes; legal are 1 to " +
                   std::to_string(kMaxPathBytes)};
}

Error path_too_deep(std::string_view path) {
  return Error{ErrorCode::limit_exceeded, "tensor.path",
               "path " + detail::quote_text(path) + " has more than " + std::to_string(kMaxDepth) +
                   " names"};
}

Result<std::string> unescape_name(std::string_view part, std::string_view path) {
  if (part.empty()) {
    return Error{ErrorCode::invalid_argument, "tensor.path",
                 "path " + detail::quote_text(path) +
                     " has an empty part; names are joined by one '/', the empty name is '%'"};
  }
  if (part == "%") return std::string();
  std::string name;
  name.reserve(part.size());
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      name += part[i];
      continue;
    }
    const std::string_view escape = part.substr(i, 3);
    if (escape == "%2F" || escape == "%2f") {
      name += '/';
    } else if (escape == "%25") {
      name += '%';
    } else {
      return Error{ErrorCode::invalid_argument, "tensor.path",
                   "path " + detail::quote_text(path) + " has the escape " +
                       detail::quote_text(escape) + "; legal are %2F for '/' and %25 for '%'"};
    }
    i += 2;
  }
  return name;
}

}  // namespace

std::string escape_name(std::string_view name) {
  if (name.empty()) return "%";
  std::string text;
  text.reserve(name.size());
  for (const char c : name) {
    if (c == '/')
      text += "%2F";
    else if (c == '%')
      text += "%25";
    else
      text += c;
  }
  return text;
}

Result<void> check_name(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return Error{ErrorCode::limit_exceeded, "tensor.path",
                 "name " + detail::quote_text(name) + " has " + std::to_string(name.size()) +
                     " bytes; legal are 0 to " + std::to_string(kMaxNameBytes)};
  }
  if (!detail::is_utf8(name)) {
    return Error{ErrorCode::invalid_argument, "tensor.path",
                 "name " + detail::quote_text(name) + " is not UTF-8"};
  }
  if (name == "__metadata__") {
    return Error{ErrorCode::invalid_argument, "tensor.path",
                 "the name '__metadata__' belongs to the safetensors format; use another one"};
  }
  return {};
}

Result<std::vector<std::string>> parse_path(std::string_view path) {
  if (path.size() > kMaxPathBytes) return path_too_long(path.size());
  std::vector<std::string> names;
  std::string_view rest = path;
  while (true) {
    if (names.size() == kMaxDepth) return path_too_deep(path);
    const std::size_t slash = rest.find('/');
    TENDON_TRY(name, unescape_name(rest.substr(0, slash), path));
    TENDON_CHECK(check_name(name));
    names.push_back(std::move(name));
    if (slash == std::string_view::npos) return names;
    rest.remove_prefix(slash + 1);
  }
}

Result<std::string> format_path(std::span<const std::string> names) {
  if (names.empty()) {
    return Error{ErrorCode::invalid_argument, "tensor.path", "a path needs at least one name"};
  }
  std::string path;
  for (const std::string& name : names) {
    TENDON_CHECK(check_name(name));
    if (&name != names.data()) path += '/';
    path += escape_name(name);
  }
  if (names.size() > kMaxDepth) return path_too_deep(path);
  if (path.size() > kMaxPathBytes) return path_too_long(path.size());
  return path;
}

}  // namespace tendon::v0
