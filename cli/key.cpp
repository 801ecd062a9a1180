// SPDX-License-Identifier: Apache-2.0
#include "cli/key.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/key_file.hpp"
#include "secure/utc_text.hpp"

namespace tendon::cli {
namespace {

using detail::SharedKey;

/// Certificates are valid from this long ago: clocks of hosts differ, and a new one is used at
/// once.
constexpr std::chrono::minutes kClockSkew{5};
constexpr std::chrono::days kAuthorityLife{3650};

detail::Validity from_now(std::chrono::days life) {
  const auto now = detail::utc_now();
  return {now - kClockSkew, now + life};
}

Result<std::vector<ShownKey>> load_shown(const std::string& file) {
  TENDON_TRY(keys, detail::load_keys(file));
  std::vector<ShownKey> shown;
  for (const SharedKey& key : keys) {
    TENDON_TRY(one, shown_of(key));
    shown.push_back(std::move(one));
  }
  return shown;
}

/// Says what else there is to do where a file exists.
template <class T>
Result<T> kept(Result<T> made, std::string_view otherwise) {
  if (!made && made.error().system_errno == EEXIST)
    made.error().detail += fmt::format(", and nothing replaces it; {}", otherwise);
  return made;
}

Result<SharedKey> new_key(const KeyNewOptions& options) {
  if (options.place == KeyPlace::added) return detail::add_key(options.file, options.label);
  return kept(detail::make_key_file(options.file, options.label), "--add adds a key to a file");
}

/// Makes a CA; returns where its files are, and how long it is valid.
Result<std::pair<detail::CertificateFiles, detail::Validity>> new_authority(
    const KeyAuthorityOptions& options) {
  const auto validity = from_now(kAuthorityLife);
  TENDON_TRY(authority, detail::make_authority(validity));
  TENDON_TRY(files, kept(detail::save_authority(options.directory, authority),
                         "`tendon key cert --ca DIR` uses the CA of a folder, and another folder "
                         "takes another CA"));
  return std::pair(files, validity);
}

Result<std::pair<detail::CertificateFiles, detail::Validity>> new_certificate(
    const KeyCertificateOptions& options) {
  const auto validity = from_now(std::chrono::days(options.days));
  TENDON_TRY(authority, detail::load_authority(options.authority));
  TENDON_TRY(member, detail::make_certificate(
                         authority, {options.name, options.dns, options.addresses}, validity));
  TENDON_TRY(files, kept(detail::save_certificate(options.directory, options.name, member,
                                                  authority.certificate.get()),
                         "another folder takes a renewed certificate of this name, and --name "
                         "makes that of another member"));
  return std::pair(files, validity);
}

void print_files(const detail::CertificateFiles& files, const detail::Validity& validity,
                 Format format) {
  const std::string ends = detail::utc_text(validity.ends);
  if (format == Format::json) {
    print_json({{"certificate", files.certificate.string()},
                {"key", files.key.string()},
                {"ca", files.authority.string()},
                {"valid_until", ends}});
    return;
  }
  print_line(fmt::format("{}  until {}\n{}  keep it secret", files.certificate.string(), ends,
                         files.key.string()));
  if (files.authority != files.certificate)
    print_line(fmt::format("{}  for peers to trust", files.authority.string()));
}

}  // namespace

void forbid_dumps() {
  constexpr rlimit kNone{0, 0};
  // Only a sandbox refuses either call, and it has its own rules for these.
  (void)setrlimit(RLIMIT_CORE, &kNone);
  (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

Result<ShownKey> shown_of(const detail::SharedKey& key) {
  TENDON_TRY(id, detail::key_id(key));
  return ShownKey{key.label, id, key.made};
}

Value::Map document_of(const ShownKey& key) {
  return {
      {"label", key.label}, {"id", key.id}, {"made", key.made.empty() ? Value() : Value(key.made)}};
}

int run_key_new(const KeyNewOptions& options) {
  const auto key = new_key(options).and_then(shown_of);
  if (!key) return report(key.error(), options.format);
  if (options.format == Format::json)
    print_json({{"file", options.file}, {"key", document_of(*key)}});
  else
    print_line(fmt::format("{}  {}  id {}", options.file, key->label, key->id));
  return 0;
}

int run_key_show(const KeyFileOptions& options) {
  const auto keys = load_shown(options.file);
  if (!keys) return report(keys.error(), options.format);
  if (options.format == Format::json) {
    Value::List documents;
    for (const ShownKey& key : *keys) documents.emplace_back(document_of(key));
    print_json({{"file", options.file}, {"keys", documents}});
    return 0;
  }
  const Table table({{"label", -24}, {"id", -16}, {"made", -20}});
  print_line(table.header());
  for (const ShownKey& key : *keys)
    print_line(table.row({key.label, key.id, key.made.empty() ? "-" : key.made}));
  return 0;
}

int run_key_id(const KeyFileOptions& options) {
  const auto keys = load_shown(options.file);
  if (!keys) return report(keys.error(), options.format);
  if (options.format == Format::json) {
    Value::List ids;
    for (const ShownKey& key : *keys) ids.emplace_back(key.id);
    print_json({{"file", options.file}, {"ids", ids}});
    return 0;
  }
  for (const ShownKey& key : *keys) print_line(key.id);
  return 0;
}

int run_key_ca(const KeyAuthorityOptions& options) {
  const auto made = new_authority(options);
  if (!made) return report(made.error(), options.format);
  print_files(made->first, made->second, options.format);
  return 0;
}

int run_key_cert(const KeyCertificateOptions& options) {
  const auto made = new_certificate(options);
  if (!made) return report(made.error(), options.format);
  print_files(made->first, made->second, options.format);
  return 0;
}

}  // namespace tendon::cli
