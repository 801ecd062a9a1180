// SPDX-License-Identifier: Apache-2.0
#include "security.hpp"

#include "arguments.hpp"
#include "bindings.hpp"
#include "choices.hpp"
#include "errors.hpp"
#include "file_name.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

constexpr const char* kSecurityDoc =
    "The peer that a secure link has to have, and the proof of this end.\n\n"
    "    fleet = tendon.Security(key='fleet.key')\n"
    "    listener = tendon.listen('0.0.0.0:7400', security=fleet)\n"
    "    pipe = tendon.connect('robot-7:7400', security=fleet)\n\n"
    "The link is TLS 1.3: nobody between the ends reads or changes a byte of it.\n\n"
    "key: a file of `tendon key new`, which both ends have.\n"
    "cert, cert_key, ca: files of `tendon key cert`: this end's certificate, its\n"
    "private key, and the CA of the peers' certificates.\n"
    "peer: for connect(), a name that the listener's certificate has to have:\n"
    "'robot-7' for the URI 'tendon:robot-7', a URI, a DNS name or an address. It\n"
    "needs cert, cert_key and ca, which are shown then in place of a key. By\n"
    "default a certificate has to have the host that is dialled.\n"
    "keylog: a file that gets the secrets of each link, for Wireshark: anyone who has\n"
    "it reads all that the links carry. Made with mode 0600, and appended to.\n\n"
    "Raises FileNotFound; PermissionDenied for a file of secrets that others may\n"
    "read; CorruptData, InvalidArgument.";

void make_security(Security* self, const nb::object& key, const nb::object& cert,
                   const nb::object& cert_key, const nb::object& ca, std::string peer,
                   const nb::object& keylog) {
  // An empty name is a variable that was not set, and no wish for a link without it.
  const auto name_of = [](const nb::object& file, const std::string& argument) {
    if (file.is_none()) return std::string();
    std::string name = file_name(file, argument);
    if (name.empty()) raise_value_error(argument + " is empty; legal are a file's name and None");
    return name;
  };
  const CredentialFiles files{.key = name_of(key, "key"),
                              .cert = name_of(cert, "cert"),
                              .cert_key = name_of(cert_key, "cert_key"),
                              .ca = name_of(ca, "ca"),
                              .keylog = name_of(keylog, "keylog")};
  auto loaded = [&] {
    const WithoutGil unlocked;
    return Security::load(files, std::move(peer));
  }();
  new (self) Security(unwrap(std::move(loaded)));
}

}  // namespace

Security security_from(const std::string& profile, nb::handle security) {
  const auto word = word_from<Profile>("profile", profile);
  if (security.is_none()) return {word};
  if (!nb::isinstance<Security>(security)) {
    raise_type_error("security is a " + quoted_type(security) +
                     "; legal are a tendon.Security and None");
  }
  if (!nb::inst_ready(security))
    raise_type_error(
        "security is a tendon.Security without files; legal is tendon.Security(key=...)");
  if (word != Profile::local && word != Profile::secure) {
    raise_value_error("profile is '" + profile +
                      "' and a security is given, which it would not use: leave one of them out");
  }
  return nb::cast<Security>(security);
}

void bind_security(nb::module_& module) {
  nb::class_<Security>(module, "Security", kSecurityDoc)
      .def("__init__", make_security, nb::kw_only(), nb::arg("key") = nb::none(),
           nb::arg("cert") = nb::none(), nb::arg("cert_key") = nb::none(),
           nb::arg("ca") = nb::none(), nb::arg("peer") = "", nb::arg("keylog") = nb::none(),
           nb::sig("def __init__(self, *, key: str | bytes | os.PathLike[str] | None = None, "
                   "cert: str | bytes | os.PathLike[str] | None = None, cert_key: str | bytes | "
                   "os.PathLike[str] | None = None, ca: str | bytes | os.PathLike[str] | None = "
                   "None, peer: str = '', keylog: str | bytes | os.PathLike[str] | None = None) "
                   "-> None"));
}

}  // namespace tendon::python
