// SPDX-License-Identifier: Apache-2.0
// How a verb declares its credentials, and the peer that it wants.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <string>
#include <tendon/session/profile.hpp>
#include <utility>

#include "cli/flags.hpp"
#include "cli/key.hpp"
#include "cli/output.hpp"
#include "core/environment.hpp"
#include "secure/credentials.hpp"
#include "secure/inherited_keys.hpp"

namespace tendon::cli {

/// How long the program that writes keys into the descriptor of --key-fd may take: it may ask a
/// person.
inline constexpr std::chrono::seconds kKeyPatience{60};

/// Adds --key, --cert, --cert-key and --ca to --insecure-plaintext. Without them, TENDON_KEY,
/// TENDON_CERT, TENDON_CERT_KEY and TENDON_CA name the files.
inline void add_credential_flags(CLI::App* verb, SecurityOptions& options) {
  add_switch(verb, "--insecure-plaintext", options.profile, Profile::plaintext,
             "Other users and machines too; nothing is encrypted");
  const auto add = [verb](const std::string& flag, std::string& file, const std::string& help) {
    verb->add_option(flag, file, help)->check(filled());
  };
  add("--key", options.files.key, "Keys that both ends have: the link is encrypted [TENDON_KEY]");
  add("--cert", options.files.cert, "This end's certificate [TENDON_CERT]");
  add("--cert-key", options.files.cert_key, "Its private key [TENDON_CERT_KEY]");
  add("--ca", options.files.ca, "The CA of the peers' certificates [TENDON_CA]");
}

/// Adds the same with --key-fd and --tls-keylog, for verbs that are one process. A descriptor can
/// be read once, and a benchmark has two processes.
inline void add_security_flags(CLI::App* verb, SecurityOptions& options) {
  add_credential_flags(verb, options);
  verb->add_option("--key-fd", options.key_descriptor,
                   "Keys as of --key, from an inherited descriptor that is read and closed")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->excludes("--key");
  verb->add_option("--tls-keylog", options.files.keylog,
                   "Append the link's secrets here, for Wireshark: who has them reads everything")
      ->check(filled());
}

/// Reads the files that were asked for. Called first, before this process has descriptors of its
/// own. Errors: those of Security::load() and read_inherited_keys(), and invalid_argument for
/// credentials beside --insecure-plaintext, and for --peer without a certificate.
[[nodiscard]] inline Result<Security> load_security(const SecurityOptions& options) {
  CredentialFiles files = options.files;
  const bool is_asked_for = files != CredentialFiles{} || options.key_descriptor;
  if (options.profile == Profile::plaintext) {
    // The environment is for all commands, and this one has said that it wants none of it.
    if (!is_asked_for && options.peer.empty()) return Security{Profile::plaintext};
    if (!is_asked_for)
      return Error{ErrorCode::invalid_argument, "cli.security",
                   "--peer is a name in a certificate, and --insecure-plaintext uses none: leave "
                   "one of the two out"};
    return Error{ErrorCode::invalid_argument, "cli.security",
                 "--insecure-plaintext uses no key and no certificate: leave one of the two out"};
  }
  const auto use = [](std::string& file, std::string_view said) {
    if (file.empty()) file = said;
  };
  if (!options.key_descriptor) use(files.key, detail::environment_variable("TENDON_KEY"));
  use(files.cert, detail::environment_variable("TENDON_CERT"));
  use(files.cert_key, detail::environment_variable("TENDON_CERT_KEY"));
  use(files.ca, detail::environment_variable("TENDON_CA"));
  if (!options.peer.empty() && files.cert.empty())
    return Error{ErrorCode::invalid_argument, "cli.security",
                 "--peer is a name in a certificate, and this end has none: say --cert, --cert-key "
                 "and --ca too, or leave --peer out"};
  if (files == CredentialFiles{} && !options.key_descriptor) return Security{options.profile};
  forbid_dumps();
  const auto load = [&]() -> Result<Security> {
    if (!options.key_descriptor) return Security::load(files, options.peer);
    TENDON_TRY(keys, detail::read_inherited_keys(*options.key_descriptor, kKeyPatience));
    TENDON_TRY(credentials, detail::secure::Credentials::load(files, std::move(keys)));
    return Security{Profile::secure, std::move(credentials), options.peer};
  };
  auto security = load();
  if (security && !files.keylog.empty()) {
    say("tendon: anyone who has " + files.keylog +
        " reads everything that the link carries: it gets the link's secrets (--tls-keylog)");
  }
  return security;
}

}  // namespace tendon::cli
