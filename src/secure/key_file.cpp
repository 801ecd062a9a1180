// SPDX-License-Identifier: Apache-2.0
#include "secure/key_file.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <span>
#include <string_view>
#include <tendon/tensor/atomic_file.hpp>
#include <utility>

#include "core/text.hpp"
#include "secure/credential_file.hpp"
#include "secure/octets.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.keys";
constexpr std::string_view kFormat = "tendon-key-v1";
constexpr std::string_view kAnyFormat = "tendon-key-";
constexpr std::string_view kMade = "# made ";
constexpr std::string_view kMadeShape = "dddd-dd-ddTdd:dd:ddZ";
constexpr std::string_view kBlanks = " \t";
constexpr std::size_t kBase64Bytes = (kSharedKeyBytes + 2) / 3 * 4;

/// The words of a line, which blanks separate; at most four, because a valid line has at most
/// three.
struct Words {
  std::array<std::string_view, 4> words;
  std::size_t count = 0;
};
Words words_of(std::string_view line) {
  Words found;
  while (found.count < found.words.size()) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty()) break;
    const std::size_t size = std::min(line.find_first_of(kBlanks), line.size());
    found.words[found.count++] = line.substr(0, size);
    line.remove_prefix(size);
  }
  return found;
}

/// The bytes of `text` in base64; nothing where it is not the canonical spelling.
std::optional<SecretBytes> decode(std::string_view text) {
  if (text.size() != kBase64Bytes) return std::nullopt;
  // libcrypto also decodes the padding, as zeros, and accepts spellings that differ in unused bits.
  SecretBytes decoded(kBase64Bytes / 4 * 3);
  SecretBytes again(kBase64Bytes + 1);
  if (EVP_DecodeBlock(as_octets(decoded.writable().data()), as_octets(text), kBase64Bytes) < 0)
    return std::nullopt;
  EVP_EncodeBlock(as_octets(again.writable().data()), as_octets(decoded.writable().data()),
                  kSharedKeyBytes);
  if (CRYPTO_memcmp(again.bytes().data(), text.data(), kBase64Bytes) != 0) return std::nullopt;
  return SecretBytes::copy_of(decoded.bytes().first(kSharedKeyBytes));
}

bool is_time(std::string_view text) {
  return std::ranges::equal(text, kMadeShape, [](char letter, char shape) {
    return shape == 'd' ? letter >= '0' && letter <= '9' : letter == shape;
  });
}

/// Reads lines one after another.
///
/// Owns:    the keys that were read.
/// Threads: one at a time.
/// Errors:  corrupt_data and limit_exceeded, for the current line.
/// Blocks:  never.
/// Cost:    one pass over the text; each key is compared with those before it.
class KeyReader {
 public:
  explicit KeyReader(const std::filesystem::path& file) : file_(file) {}

  [[nodiscard]] Result<void> read(std::string_view line);
  /// Returns the keys of the whole file.
  [[nodiscard]] Result<std::vector<SharedKey>> finish() &&;

 private:
  [[nodiscard]] Error wrong(std::string why) const {
    return Error{
        ErrorCode::corrupt_data, kWhere,
        "'" + file_.string() + "' line " + std::to_string(number_) + ": " + std::move(why)};
  }
  [[nodiscard]] Result<void> read_key(const Words& found);
  [[nodiscard]] Result<void> check_new(const SharedKey& key) const;

  const std::filesystem::path& file_;
  std::size_t number_ = 0;  // of the current line
  std::string_view made_;   // the date in the comment of the previous line
  std::vector<SharedKey> keys_;
  std::vector<std::size_t> lines_;  // of the keys
};

Result<void> KeyReader::read(std::string_view line) {
  ++number_;
  for (const char letter : line) {
    if ((static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f) || letter == '\t') continue;
    return wrong("has the control character " + escaped_byte(letter) +
                 (letter == '\r' ? "; legal are lines that end with LF, not with CR LF: convert it"
                                 : "; legal is text"));
  }
  const std::string_view made = std::exchange(made_, {});
  const Words found = words_of(line);
  if (found.count == 0) return {};
  if (found.words[0].front() == '#') {
    if (line.starts_with(kMade) && is_time(line.substr(kMade.size())))
      made_ = line.substr(kMade.size());
    return {};
  }
  TENDON_CHECK(read_key(found));
  keys_.back().made = made;
  return {};
}

Result<void> KeyReader::read_key(const Words& found) {
  const auto& [format, label, base64, rest] = found.words;
  if (format.starts_with("-----BEGIN")) {
    return wrong(
        "begins with '-----BEGIN', as certificates and their keys do (--cert, --cert-key, --ca); a "
        "file of keys has lines '" +
        std::string(kFormat) + " LABEL BASE64'");
  }
  if (format != kFormat) {
    return wrong("does not begin with '" + std::string(kFormat) + "'" +
                 (format.starts_with(kAnyFormat) ? ", the only version that this build reads"
                                                 : ", nor with '#' as a comment does"));
  }
  if (found.count != 3)
    return wrong("has not three words; legal is '" + std::string(kFormat) + " LABEL BASE64'");
  if (!is_label(label)) return wrong("its second word is no label; " + legal_label());
  auto secret = decode(base64);
  if (!secret) {
    return wrong("the key, its third word, is not " + std::to_string(kSharedKeyBytes) +
                 " bytes in base64, which are " + std::to_string(kBase64Bytes) +
                 " characters of one spelling: this has " + std::to_string(base64.size()) +
                 "; make keys by `tendon key new`, they are no passwords");
  }
  SharedKey key{std::string(label), *std::move(secret), {}};
  TENDON_CHECK(check_new(key));
  keys_.push_back(std::move(key));
  lines_.push_back(number_);
  return {};
}

Result<void> KeyReader::check_new(const SharedKey& key) const {
  if (keys_.size() == kMaxKeysOfFile) {
    Error full = wrong("is a key more than " + std::to_string(kMaxKeysOfFile) +
                       ", the most of one file: remove those that no peer uses");
    full.code = ErrorCode::limit_exceeded;
    return full;
  }
  const Bytes secret = key.secret.bytes();
  if (std::ranges::all_of(secret, [&](std::byte byte) { return byte == secret.front(); }))
    return wrong("the key is one byte over and over, which anybody guesses: `tendon key new`");
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::string first = " of line " + std::to_string(lines_[i]);
    if (keys_[i].label == key.label)
      return wrong("has the label '" + key.label + "'" + first + " again: give it another one");
    if (CRYPTO_memcmp(keys_[i].secret.bytes().data(), secret.data(), secret.size()) == 0)
      return wrong("has the key" + first + " again, under another label: remove one of them");
  }
  return {};
}

Result<std::vector<SharedKey>> KeyReader::finish() && {
  if (!keys_.empty()) return std::move(keys_);
  return Error{ErrorCode::corrupt_data, kWhere,
               "'" + file_.string() + "' has no key; legal is a line '" + std::string(kFormat) +
                   " LABEL BASE64' at least: make one by `tendon key new`"};
}

/// The lines of a key in a file: its comment and its key line.
SecretBytes lines_of(const SharedKey& key) {
  const std::string front =
      std::string(kMade) + key.made + "\n" + std::string(kFormat) + " " + key.label + " ";
  SecretBytes text(front.size() + kBase64Bytes + 1);
  const MutableBytes room = text.writable();
  std::ranges::copy(as_bytes(front), room.begin());
  EVP_EncodeBlock(as_octets(room.subspan(front.size()).data()),
                  as_octets(key.secret.bytes().data()), kSharedKeyBytes);
  room.back() = std::byte{'\n'};  // in place of the zero that libcrypto has put there
  return text;
}

Result<void> write_file(const std::filesystem::path& file, ExistingFile existing,
                        std::initializer_list<Bytes> pieces) {
  TENDON_TRY(written, AtomicFile::create(file, existing, FileReaders::owner_only));
  TENDON_CHECK(written.write(std::span<const Bytes>(pieces.begin(), pieces.size())));
  return written.commit();
}

/// `origin`: of a label that nobody has written.
Error no_label(const std::string& label, std::string_view origin = "") {
  return Error{ErrorCode::invalid_argument, kWhere,
               "the label '" + escaped(label, NAME_MAX) + "'" + std::string(origin) + " (" +
                   std::to_string(label.size()) + " bytes) is none; " + legal_label() +
                   ": give one by --label"};
}

/// "fleet-2", or the next number that no key has.
std::string numbered_label(const std::vector<SharedKey>& keys) {
  for (std::size_t number = 2;; ++number) {
    const std::string end = "-" + std::to_string(number);
    std::string label = keys.front().label.substr(0, kMaxLabelBytes - end.size()) + end;
    if (std::ranges::find(keys, label, &SharedKey::label) == keys.end()) return label;
  }
}

}  // namespace

Result<std::vector<SharedKey>> parse_keys(Bytes text, const std::filesystem::path& file) {
  KeyReader reader(file);
  for (std::string_view rest = as_text(text); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    TENDON_CHECK(reader.read(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::move(reader).finish();
}

Result<std::vector<SharedKey>> load_keys(const std::filesystem::path& file) {
  return parse_file(file, FileReaders::owner_only, parse_keys);
}

Result<SharedKey> make_key_file(const std::filesystem::path& file, std::string label) {
  const bool is_of_file = label.empty();
  if (is_of_file) label = file.stem().string();
  if (!is_label(label)) return no_label(label, is_of_file ? ", from the name of the file," : "");
  TENDON_CHECK(check_directories(file.parent_path()));
  TENDON_TRY(key, make_shared_key(std::move(label)));
  const SecretBytes lines = lines_of(key);
  constexpr std::string_view kHead =
      "# Keys of Tendon: the first one is dialled with, all are accepted. All who have this file "
      "are one person to a peer.\n";
  TENDON_CHECK(write_file(file, ExistingFile::keep, {as_bytes(kHead), lines.bytes()}));
  return key;
}

Result<SharedKey> add_key(const std::filesystem::path& file, std::string label) {
  TENDON_TRY(opened, CredentialFile::open(file));
  TENDON_CHECK(opened.claim());
  TENDON_TRY(text, opened.read());
  TENDON_TRY(keys, opened.parse(text.bytes(), FileReaders::owner_only, parse_keys));
  if (label.empty()) label = numbered_label(keys);
  if (!is_label(label)) return no_label(label);
  if (std::ranges::find(keys, label, &SharedKey::label) != keys.end()) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 "'" + file.string() + "' has a key with the label '" + label +
                     "': give another one by --label"};
  }
  TENDON_TRY(key, make_shared_key(std::move(label)));
  const SecretBytes lines = lines_of(key);
  const Bytes before = text.bytes();
  const std::string_view end = before.back() == std::byte{'\n'} ? "" : "\n";
  SecretBytes whole(before.size() + end.size() + lines.bytes().size());
  auto at = std::ranges::copy(before, whole.writable().begin()).out;
  at = std::ranges::copy(as_bytes(end), at).out;
  std::ranges::copy(lines.bytes(), at);
  // A text that a reader would refuse is not written.
  TENDON_CHECK(check_size(whole.bytes(), file));
  TENDON_CHECK(parse_keys(whole.bytes(), file));
  // Writes the target of a symbolic link, not the link.
  std::error_code failure;
  const auto real = std::filesystem::canonical(file, failure);
  if (failure) return system_error(kWhere, "realpath('" + file.string() + "')", failure.value());
  TENDON_CHECK(write_file(real, ExistingFile::replace, {whole.bytes()}));
  return key;
}

}  // namespace tendon::v0::detail
