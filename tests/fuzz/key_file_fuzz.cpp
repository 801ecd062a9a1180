// SPDX-License-Identifier: Apache-2.0
// A file of keys that somebody has edited. It is refused with a line and a reason that show no key,
// or it has keys with distinct labels.
#include <cctype>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "require.hpp"
#include "secure/key_file.hpp"

namespace {

using namespace tendon::detail;

using tendon::ErrorCode;
using tendon::test::require;

bool is_blank(char letter) { return std::isspace(static_cast<unsigned char>(letter)) != 0; }

/// True if `shown` has a word of `text` that could be a key, and is no label.
bool shows_a_key(const std::string& shown, std::string_view text) {
  constexpr std::size_t kShortestKey = 40;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = begin;
    while (end < text.size() && !is_blank(text[end])) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    if (word.size() >= kShortestKey && !is_label(word) && shown.find(word) != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  // A copy of exactly its size, so that a sanitizer sees a read beyond its end.
  const auto text = tendon::test::exact_storage(std::as_bytes(std::span(data, size_bytes)));
  const tendon::Bytes bytes = text.bytes();
  const auto keys = parse_keys(bytes, "file");
  if (!keys) {
    const tendon::Error& error = keys.error();
    require(error.code == ErrorCode::corrupt_data || error.code == ErrorCode::limit_exceeded);
    require(error.detail.find("'file'") == 0);
    require(!shows_a_key(error.detail, tendon::as_text(bytes)));
    return 0;
  }
  require(!keys->empty() && keys->size() <= kMaxKeysOfFile);
  std::set<std::string> labels;
  std::set<std::string_view> secrets;
  for (const SharedKey& key : *keys) {
    require(is_label(key.label) && labels.insert(key.label).second);
    require(key.secret.bytes().size() == kSharedKeyBytes);
    require(secrets.insert(tendon::as_text(key.secret.bytes())).second);
    require(key.made.empty() || key.made.size() == 20);
  }
  require(key_id(keys->front()).value().size() == 16);
  return 0;
}
