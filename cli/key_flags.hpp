// SPDX-License-Identifier: Apache-2.0
// The flags of `tendon key`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/flags.hpp"
#include "cli/key.hpp"

namespace tendon::cli {

/// The longest life of a certificate that `key cert` makes [days]: nothing can revoke it.
inline constexpr int kMaxCertificateDays = 825;

/// Adds a verb below `key`; its options are passed to `run`.
template <class Options>
std::pair<CLI::App*, std::shared_ptr<Options>> add_key_verb(CLI::App* key, const std::string& name,
                                                            const std::string& help,
                                                            int (*run)(const Options&),
                                                            int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = key->add_subcommand(name, help);
  add_json(verb, options->format);
  verb->callback([options, run, &exit_code] {
    forbid_dumps();
    exit_code = run(*options);
  });
  return {verb, options};
}

inline void add_key(CLI::App& app, int& exit_code) {
  CLI::App* key = app.add_subcommand("key", "Keys and certificates, in files");
  key->require_subcommand(1);
  const auto [made, made_options] =
      add_key_verb(key, "new", "Makes a file with a key that hosts share", run_key_new, exit_code);
  made->add_option("FILE", made_options->file, "The file, which nobody else may read")->required();
  made->add_option("--label", made_options->label, "What peers call its holders [the file's name]");
  add_switch(made, "--add", made_options->place, KeyPlace::added,
             "Add a key to FILE: the first one is dialled with, all are accepted");
  const auto [shown, shown_options] = add_key_verb(
      key, "show", "Labels, ids and dates of keys, never the keys", run_key_show, exit_code);
  shown->add_option("FILE", shown_options->file, "A file of `key new`")->required();
  const auto [named, named_options] = add_key_verb(
      key, "id", "The id of each key: equal where the key is the same", run_key_id, exit_code);
  named->add_option("FILE", named_options->file, "A file of `key new`")->required();
  const auto [authority, authority_options] =
      add_key_verb(key, "ca", "Makes a private CA", run_key_ca, exit_code);
  authority->add_option("DIR", authority_options->directory, "A folder for ca.crt and ca.key")
      ->required();
  const auto [member, member_options] = add_key_verb(
      key, "cert", "Makes the certificate of a member, and its key", run_key_cert, exit_code);
  member->add_option("OUTDIR", member_options->directory, "A folder for NAME.crt, NAME.key, ca.crt")
      ->required();
  member->add_option("--ca", member_options->authority, "The folder of `key ca`")->required();
  member->add_option("--name", member_options->name, "The member that it names, as tendon:NAME")
      ->required();
  member->add_option("--dns", member_options->dns, "A DNS name of its host; once for each")
      ->allow_extra_args(false);
  member->add_option("--ip", member_options->addresses, "An address of its host; once for each")
      ->allow_extra_args(false);
  member->add_option("--days", member_options->days, "How long it is valid [90]")
      ->check(CLI::Range(1, kMaxCertificateDays));
  const auto [checked, checked_options] = add_key_verb(
      key, "check", "Says why a peer would refuse keys and certificates", run_key_check, exit_code);
  checked
      ->add_option("FILE", checked_options->files,
                   "Files of keys, certificates, keys of these, and the CA that is trusted")
      ->required();
  CLI::Option* peer = checked
                          ->add_option("--peer", checked_options->address,
                                       "A listener, HOST:PORT, that is dialled with them")
                          ->check(filled());
  checked
      ->add_option("--peer-name", checked_options->peer,
                   "A name that its certificate has [the host of --peer]")
      ->check(filled())
      ->needs(peer);
  checked
      ->add_option("--timeout", checked_options->timeout_s, "Seconds for the answer of --peer [5]")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
}

}  // namespace tendon::cli
