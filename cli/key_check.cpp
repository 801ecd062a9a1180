// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <openssl/x509.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/key.hpp"
#include "cli/key_check_peer.hpp"
#include "cli/verbs.hpp"
#include "secure/certificate.hpp"
#include "secure/certificate_check.hpp"
#include "secure/credential_file.hpp"
#include "secure/key_file.hpp"
#include "secure/utc_text.hpp"

namespace tendon::cli {
namespace {

/// One file: the facts that could be read, and its faults.
struct CheckedFile {
  std::string name;
  std::vector<ShownKey> keys;
  detail::CertificateChain chain;
  detail::CryptoOwned<EVP_PKEY> private_key;
  std::vector<Error> faults;

  [[nodiscard]] X509* certificate() const { return chain.empty() ? nullptr : chain.front().get(); }
  [[nodiscard]] bool is_authority() const {
    return !chain.empty() && detail::is_authority(certificate());
  }
};

/// Returns the value, or nothing after it has noted a fault of the file.
template <class T>
std::optional<T> taken(Result<T> result, CheckedFile& file) {
  if (result) return *std::move(result);
  file.faults.push_back(std::move(result).error());
  return std::nullopt;
}

void note(const Result<void>& result, CheckedFile& file) {
  if (!result) file.faults.push_back(result.error());
}

/// Reads from the text of a file which keys and certificates it holds.
void read_text(Bytes bytes, const detail::CredentialFile& opened, CheckedFile& file) {
  const std::string_view text = as_text(bytes);
  const bool has_certificate = text.find("-----BEGIN CERTIFICATE-----") != std::string_view::npos;
  const bool has_private_key = text.find("PRIVATE KEY-----") != std::string_view::npos;
  // A file that only has the wrong name here keeps its mode without a complaint.
  const bool is_secret = detail::has_secrets(bytes);
  if (is_secret || has_certificate)
    note(opened.check_access(is_secret ? FileReaders::owner_only : FileReaders::everybody), file);
  if (has_certificate)
    if (auto chain = taken(detail::parse_certificates(bytes, file.name), file))
      file.chain = *std::move(chain);
  if (has_private_key)
    if (auto key = taken(detail::parse_private_key(bytes, file.name), file))
      file.private_key = *std::move(key);
  if (has_certificate || has_private_key) return;
  const auto keys = taken(detail::parse_keys(bytes, file.name), file);
  if (!keys) return;
  for (const detail::SharedKey& key : *keys)
    if (auto shown = taken(shown_of(key), file)) file.keys.push_back(*std::move(shown));
}

CheckedFile read_file(const std::string& name) {
  CheckedFile file{name, {}, {}, {}, {}};
  const auto opened = taken(detail::CredentialFile::open(name), file);
  if (!opened) return file;
  const auto text = taken(opened->read(), file);
  if (text) read_text(text->bytes(), *opened, file);
  return file;
}

/// Compares the files with each other: which CA signed a certificate, and which certificate a key
/// belongs to.
void compare(std::vector<CheckedFile>& files) {
  const detail::CryptoErrors errors;
  std::vector<X509*> authorities;
  std::vector<X509*> all;
  for (const CheckedFile& file : files) {
    if (!file.chain.empty()) all.push_back(file.certificate());
    if (file.is_authority()) authorities.push_back(file.certificate());
  }
  const auto now = detail::utc_now();
  for (CheckedFile& file : files) {
    std::vector<Error> faults;
    if (file.is_authority())
      faults = detail::faults_of_authority(file.certificate(), now);
    else if (!file.chain.empty())
      faults = detail::faults_of_member(file.chain, authorities, now);
    for (Error& fault : faults)
      file.faults.push_back(with_context(std::move(fault), "'" + file.name + "'"));
    const auto fits = [&](X509* certificate) {
      return X509_check_private_key(certificate, file.private_key.get()) == 1;
    };
    if (file.private_key != nullptr && !all.empty() && std::ranges::none_of(all, fits)) {
      file.faults.push_back(Error{ErrorCode::permission_denied, "cli.key",
                                  "'" + file.name + "' is the key of none of the certificates: " +
                                      "name the one that was made with it"});
    }
  }
}

/// "tendon:worker-3, dns:a.example".
std::string list_of(const std::vector<std::string>& names) {
  return names.empty() ? "nobody" : fmt::format("{}", fmt::join(names, ", "));
}

std::string describe(const CheckedFile& file) {
  std::vector<std::string> parts;
  parts.reserve(file.keys.size() + 2);
  for (const ShownKey& key : file.keys)
    parts.push_back(fmt::format("key {} (id {})", key.label, key.id));
  if (!file.chain.empty()) {
    const auto validity = detail::validity_of(file.certificate());
    parts.push_back(fmt::format(
        "{}, {} to {}",
        file.is_authority() ? "CA"
                            : "certificate of " + list_of(detail::names_in(file.certificate())),
        detail::utc_text(validity.begins), detail::utc_text(validity.ends)));
  }
  if (file.private_key != nullptr) parts.emplace_back("private key");
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_file(const CheckedFile& file) {
  const std::string what = describe(file);
  print_line(fmt::format("{:<6} {}{}{}", file.faults.empty() ? "ok" : "refuse", file.name,
                         what.empty() ? "" : ": ", what));
  for (const Error& fault : file.faults)
    print_line(
        fmt::format("       {} {}: {}", error_id(fault.code), to_string(fault.code), fault.detail));
}

Value::Map document_of(const CheckedFile& file) {
  Value::Map document = {{"file", file.name}};
  if (!file.keys.empty()) {
    Value::List keys;
    for (const ShownKey& key : file.keys) keys.emplace_back(document_of(key));
    document.emplace_back("keys", std::move(keys));
  }
  if (!file.chain.empty()) {
    const auto validity = detail::validity_of(file.certificate());
    Value::List names;
    for (const std::string& name : detail::names_in(file.certificate())) names.emplace_back(name);
    document.emplace_back("certificate",
                          Value::Map{{"ca", file.is_authority()},
                                     {"names", std::move(names)},
                                     {"valid_from", detail::utc_text(validity.begins)},
                                     {"valid_until", detail::utc_text(validity.ends)}});
  }
  document.emplace_back("private_key", file.private_key != nullptr);
  Value::List faults;
  for (const Error& fault : file.faults) faults.emplace_back(error_document(fault));
  document.emplace_back("faults", std::move(faults));
  return document;
}

/// The files as a program takes them. invalid_argument where there are two of a kind.
Result<CredentialFiles> credentials_of(const std::vector<CheckedFile>& files) {
  CredentialFiles found;
  for (const CheckedFile& file : files) {
    const auto use = [&](std::string& place, bool holds) -> Result<void> {
      std::error_code ignored;
      if (!holds || std::filesystem::equivalent(place, file.name, ignored)) return {};
      if (place.empty()) {
        place = file.name;
        return {};
      }
      return Error{ErrorCode::invalid_argument, "cli.key",
                   fmt::format("'{}' and '{}' are of one kind, and a peer is shown one of each: "
                               "name the files that a program has",
                               place, file.name)};
    };
    TENDON_CHECK(use(found.key, !file.keys.empty()));
    TENDON_CHECK(use(found.cert, !file.chain.empty() && !file.is_authority()));
    TENDON_CHECK(use(found.cert_key, file.private_key != nullptr));
    TENDON_CHECK(use(found.ca, file.is_authority()));
  }
  return found;
}

/// Checks the listener of --peer, where there is one.
std::optional<CheckedPeer> ask_peer(const KeyCheckOptions& options,
                                    const std::vector<CheckedFile>& files) {
  if (options.address.empty()) return std::nullopt;
  const auto credentials = credentials_of(files);
  if (!credentials) return CheckedPeer{options.address, {}, credentials.error()};
  if (!options.peer.empty() && credentials->cert.empty())
    return CheckedPeer{options.address,
                       {},
                       Error{ErrorCode::invalid_argument, "cli.key",
                             "--peer-name is a name in a certificate, and no file is one of a "
                             "member: name that, its key and the CA, or leave --peer-name out"}};
  return check_peer(*credentials, options.address, options.peer, to_duration(options.timeout_s));
}

}  // namespace

int run_key_check(const KeyCheckOptions& options) {
  std::vector<CheckedFile> files;
  files.reserve(options.files.size());
  for (const std::string& name : options.files) files.push_back(read_file(name));
  compare(files);
  int exit_code = 0;
  Value::List documents;
  for (const CheckedFile& file : files) {
    if (options.format == Format::json)
      documents.emplace_back(document_of(file));
    else
      print_file(file);
    if (exit_code == 0 && !file.faults.empty())
      exit_code = error_info(file.faults.front().code).exit_code;
  }
  const auto peer = ask_peer(options, files);
  if (exit_code == 0 && peer && peer->fault) exit_code = error_info(peer->fault->code).exit_code;
  if (options.format == Format::json) {
    Value::Map document = {{"files", std::move(documents)}};
    if (peer) document.emplace_back("peer", document_of(*peer));
    print_json(std::move(document));
  } else if (peer) {
    print_peer(*peer);
  }
  const bool has_authority = std::ranges::any_of(files, &CheckedFile::is_authority);
  const bool has_member = std::ranges::any_of(
      files, [](const CheckedFile& file) { return !file.chain.empty() && !file.is_authority(); });
  if (has_member && !has_authority)
    say("tendon: no CA was given, so nobody has looked who signed a certificate");
  return exit_code;
}

}  // namespace tendon::cli
