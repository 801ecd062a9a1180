// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_credentials.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>

#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/key_file.hpp"
#include "secure/utc_text.hpp"

namespace tendon::cli {
namespace {

constexpr const char* kName = "bench";

}  // namespace

Result<BenchCredentials> BenchCredentials::make() {
  std::error_code none;
  const auto parent = std::filesystem::temp_directory_path(none);
  std::string pattern = ((none ? "/tmp" : parent) / "tendon-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    return system_error("cli.bench.secure", "mkdtemp('" + pattern + "')", errno);
  BenchCredentials made(pattern);
  TENDON_CHECK(detail::make_key_file(made.directory_ / "bench.key", kName));
  const auto now = detail::utc_now();
  const detail::Validity validity{now - std::chrono::minutes(1), now + std::chrono::days(1)};
  TENDON_TRY(authority, detail::make_authority(validity));
  TENDON_CHECK(detail::save_authority(made.directory_ / "ca", authority));
  TENDON_TRY(member, detail::make_certificate(authority, {kName, {}, {}}, validity));
  TENDON_CHECK(detail::save_certificate(made.directory_ / kName, kName, member,
                                        authority.certificate.get()));
  return made;
}

BenchCredentials::~BenchCredentials() {
  if (directory_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

CredentialFiles BenchCredentials::key() const {
  return {.key = (directory_ / "bench.key").string()};
}

CredentialFiles BenchCredentials::certificates() const {
  const auto member = directory_ / kName;
  return {.cert = (member / "bench.crt").string(),
          .cert_key = (member / "bench.key").string(),
          .ca = (member / "ca.crt").string()};
}

}  // namespace tendon::cli
