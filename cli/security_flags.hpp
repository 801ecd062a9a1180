// SPDX-License-Identifier: Apache-2.0
// How a verb declares its credentials, and the peer that it wants.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <tendon/session/profile.hpp>

#include "cli/flags.hpp"
#include "cli/key.hpp"
#include "core/environment.hpp"

namespace tendon::cli {

/// Adds --key, --cert, --cert-key and --ca to --insecure-plaintext. Left out, the first four
/// are what TENDON_KEY, TENDON_CERT, TENDON_CERT_KEY and TENDON_CA say.
inline void add_security_flags(CLI::App* verb, SecurityOptions& options) {
  add_switch(verb, "--insecure-plaintext", options.profile, Profile::plaintext,
             "Other users and machines too; nothing is encrypted");
  verb->add_option("--key", options.files.key,
                   "Keys that both ends have: the link is encrypted [TENDON_KEY]");
  verb->add_option("--cert", options.files.cert, "This end's certificate [TENDON_CERT]");
  verb->add_option("--cert-key", options.files.cert_key, "Its private key [TENDON_CERT_KEY]");
  verb->add_option("--ca", options.files.ca, "The CA of the peers' certificates [TENDON_CA]");
}

/// Reads the files that were asked for. Errors: those of Security::load(), and invalid_argument for
/// credentials beside --insecure-plaintext.
[[nodiscard]] inline Result<Security> load_security(const SecurityOptions& options) {
  CredentialFiles files = options.files;
  const bool is_asked_for =
      !files.key.empty() || !files.cert.empty() || !files.cert_key.empty() || !files.ca.empty();
  if (options.profile == Profile::plaintext) {
    // The environment is for all commands, and this one has said that it wants none of it.
    if (!is_asked_for) return Security{Profile::plaintext};
    return Error{ErrorCode::invalid_argument, "cli.security",
                 "--insecure-plaintext uses no key and no certificate: leave one of the two out"};
  }
  const auto use = [](std::string& file, std::string_view said) {
    if (file.empty()) file = said;
  };
  use(files.key, detail::environment_variable("TENDON_KEY"));
  use(files.cert, detail::environment_variable("TENDON_CERT"));
  use(files.cert_key, detail::environment_variable("TENDON_CERT_KEY"));
  use(files.ca, detail::environment_variable("TENDON_CA"));
  if (files == CredentialFiles{}) return Security{options.profile};
  forbid_dumps();
  return Security::load(files, options.peer);
}

}  // namespace tendon::cli
