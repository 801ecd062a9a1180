// SPDX-License-Identifier: Apache-2.0
#include "secure/shared_key.hpp"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/text.hpp"
#include "secure/crypto_library.hpp"
#include "secure/utc_text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.key";
constexpr std::size_t kIdBytes = 8;

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

OSSL_PARAM octets(const char* name, Bytes bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                           bytes.size());
}

}  // namespace

bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= kMaxLabelBytes && is_letter_or_digit(text.front()) &&
         std::ranges::all_of(text, [](char letter) {
           return is_letter_or_digit(letter) || letter == '.' || letter == '_' || letter == '-';
         });
}

std::string legal_label() {
  return "legal are 1 to " + std::to_string(kMaxLabelBytes) +
         " letters and digits of ASCII, '.', '_' and '-', and a letter or a digit first";
}

Result<SharedKey> make_shared_key(std::string label) {
  SecretBytes secret(kSharedKeyBytes);
  // Requests of up to 256 bytes are never cut short (getrandom(2)), only refused or interrupted.
  while (getrandom(secret.writable().data(), kSharedKeyBytes, 0) < 0) {
    if (errno != EINTR) return system_error(kWhere, "getrandom(32 bytes)", errno);
  }
  return SharedKey{std::move(label), std::move(secret), utc_text(utc_now())};
}

Result<std::string> key_id(const SharedKey& key) {
  const CryptoErrors errors;
  const CryptoOwned<EVP_KDF> hkdf(EVP_KDF_fetch(crypto_library(), "HKDF", nullptr));
  const CryptoOwned<EVP_KDF_CTX> context(EVP_KDF_CTX_new(hkdf.get()));
  std::string digest = "SHA256";
  std::array<OSSL_PARAM, 5> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
      octets(OSSL_KDF_PARAM_KEY, key.secret.bytes()),
      octets(OSSL_KDF_PARAM_SALT, as_bytes("tendon key id v1")),
      octets(OSSL_KDF_PARAM_INFO, as_bytes("id")), OSSL_PARAM_construct_end()};
  std::array<std::byte, kIdBytes> id{};
  if (context == nullptr ||
      EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(id.data()), id.size(),
                     parameters.data()) != 1)
    return errors.failed(kWhere, "derive the id of a key");
  return to_hex(id);
}

}  // namespace tendon::v0::detail
