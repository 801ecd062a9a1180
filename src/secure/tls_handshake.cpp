// SPDX-License-Identifier: Apache-2.0
#include "secure/tls_handshake.hpp"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.hpp"
#include "secure/certificate_check.hpp"
#include "secure/client_hello_gate.hpp"
#include "secure/octets.hpp"
#include "secure/tls_limits.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kWhere = "secure.handshake";
constexpr std::string_view kProtocol = "tendon/1";
constexpr std::array<unsigned char, 2> kSuite = {0x13, 0x02};  // TLS_AES_256_GCM_SHA384

// Refusals that concern the identity of the peer, or of this end in the peer's view. An alert of
// the peer is the reason 1000 + its number (RFC 8446, section 6).
bool is_about_identity(unsigned long error) {
  constexpr int kAlert = SSL_AD_REASON_OFFSET;
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_BAD_SIGNATURE:
    case kAlert + SSL_AD_HANDSHAKE_FAILURE:
    case kAlert + SSL_AD_BAD_CERTIFICATE:
    case kAlert + SSL_AD_ILLEGAL_PARAMETER:
    case kAlert + SSL_AD_DECRYPT_ERROR:
    case kAlert + SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

bool has_name(X509* certificate, const std::vector<std::string>& names, const std::string& name) {
  const auto is_said = [&](const std::string& uri) {
    return std::ranges::find(names, uri) != names.end();
  };
  // A DNS name or an address in `names` has a prefix, so none of them is mistaken for a URI.
  if (name.find(':') != std::string::npos && !name.starts_with("dns:") &&
      !name.starts_with("ip:") && is_said(name))
    return true;
  constexpr unsigned kFlags =
      X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
  return is_said("tendon:" + name) ||
         X509_check_host(certificate, name.data(), name.size(), kFlags, nullptr) == 1 ||
         X509_check_ip_asc(certificate, name.c_str(), 0) == 1;
}

// True for the types of the records of TLS, 20 to 23. Most other protocols begin with a letter.
bool begins_as_tls(std::byte first) { return first >= std::byte{20} && first <= std::byte{23}; }

// OpenSSL's word for an alert without the version of TLS before it, which is not the version of
// this handshake: "sslv3 alert illegal parameter".
std::string alert_name(const std::string& reason) {
  constexpr std::string_view kAlert = " alert ";
  const std::size_t at = reason.find(kAlert);
  return at == std::string::npos ? reason : reason.substr(at + kAlert.size());
}

// The next step of an end whose credentials the peer has refused by this alert.
std::string_view advice_on(int alert, bool has_shown_key) {
  if (alert == SSL_AD_HANDSHAKE_FAILURE)
    return "it has no certificate to show, as it seems: use one key on both ends, or certificates";
  if (alert == SSL_AD_CERTIFICATE_REQUIRED) return "it takes a certificate of its CA alone";
  if (has_shown_key)
    return "its log has the reason; where it has that key, `tendon key id` prints the same digits "
           "on both ends";
  return "its log has the reason";
}

// Returns an empty text if OpenSSL failed.
std::string digest_of(const X509* certificate) {
  std::array<std::byte, 32> digest{};
  unsigned size = digest.size();
  if (X509_digest(certificate, EVP_sha256(), as_octets(digest.data()), &size) != 1) return {};
  return to_hex(digest);
}

std::string text_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

/// The callbacks for OpenSSL.
struct TlsHandshake::Callbacks {
  // No exception may pass through OpenSSL, so a call without memory fails.
  template <class F>
  static int guarded(F call) noexcept {
    try {
      return call();
    } catch (...) {
      return 0;
    }
  }

  static TlsHandshake& of(const SSL* ssl) {
    return *static_cast<TlsHandshake*>(SSL_get_app_data(ssl));
  }

  // On a client: provides its key.
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* bytes,
                     SSL_SESSION** session) {
    TlsHandshake& self = of(ssl);
    *session = nullptr;
    const SharedKey* const key = self.key_to_dial();
    if (self.options_.session_id.empty() && key == nullptr) return 1;
    const Bytes secret =
        self.options_.session_id.empty() ? key->secret.bytes() : self.options_.session_key;
    CryptoOwned<ssl_session_st> made = self.session_of(secret);
    if (made == nullptr) return 0;
    *identity = as_octets(self.client_identity_);
    *bytes = self.client_identity_.size();
    *session = made.release();
    return 1;
  }

  // On a server: finds the key of an identity. An unknown identity gets a key that nobody knows, so
  // that it fails like a wrong key.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes,
                      SSL_SESSION** session) {
    return guarded([&] { return find(of(ssl), identity, bytes, session); });
  }
  static int find(TlsHandshake& self, const unsigned char* identity, std::size_t bytes,
                  SSL_SESSION** session) {
    const std::string_view said(reinterpret_cast<const char*>(identity), bytes);
    Secret<kSharedKeyBytes> secret;
    const MutableBytes writable = secret.bytes();
    if (RAND_priv_bytes_ex(crypto_library(), as_octets(writable.data()), writable.size(), 0) != 1)
      return 0;
    if (said.starts_with(kKeyPrefix) && self.options_.expected_peer.empty()) {
      const SharedKey* const key = self.credentials_->find_key(said.substr(kKeyPrefix.size()));
      if (key != nullptr) {
        std::ranges::copy(key->secret.bytes(), writable.begin());
        self.client_identity_ = said;
      }
    } else if (said.starts_with(kSessionPrefix) && self.options_.find_session) {
      self.names_session_ = true;
      auto found = self.options_.find_session(said.substr(kSessionPrefix.size()));
      if (found) {
        secret = std::move(*found);
        self.client_identity_ = said;
      }
    }
    *session = self.session_of(secret.bytes()).release();
    return *session == nullptr ? 0 : 1;
  }

  // On both sides: checks the peer's certificate. The alert is the same for every reason.
  static int check_certificate(X509_STORE_CTX* store, void*) {
    return guarded([&] { return check(store); });
  }
  static int check(X509_STORE_CTX* store) {
    const auto* ssl = static_cast<const SSL*>(
        X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsHandshake& self = of(ssl);
    const bool is_signed = X509_verify_cert(store) == 1;
    X509* const certificate = X509_STORE_CTX_get0_cert(store);
    if (!is_signed) {
      self.why_refused_ = why_untrusted(X509_STORE_CTX_get_error(store));
    } else {
      std::vector<std::string> names = identities_in(certificate);
      const std::string& expected = self.options_.expected_peer;
      if (names.empty()) {
        self.why_refused_ = kNamesNobody;
      } else if (!expected.empty() && !has_name(certificate, names, expected)) {
        self.why_refused_ = "it is of " + text_of(names) + ", and '" + expected + "' is expected";
      } else {
        self.session_.names = std::move(names);
        self.certificate_digest_ = digest_of(certificate);
        return self.certificate_digest_.empty() ? 0 : 1;
      }
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
  }

  // On a server: chooses the ALPN protocol.
  static int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                             const unsigned char* offered, unsigned int offered_bytes, void*) {
    const Bytes list = std::as_bytes(std::span(offered, offered_bytes));
    for (std::size_t at = 0; at < list.size();) {
      const auto bytes = std::to_integer<std::size_t>(list[at]);
      if (bytes > list.size() - at - 1) break;
      if (as_text(list.subspan(at + 1, bytes)) == kProtocol) {
        *chosen = offered + at + 1;
        *chosen_bytes = static_cast<unsigned char>(bytes);
        return SSL_TLSEXT_ERR_OK;
      }
      at += 1 + bytes;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }

  // On both sides: this is the only way to read the traffic secrets.
  static void take_secret(const SSL* ssl, const char* text) {
    TlsHandshake& self = of(ssl);
    const std::string_view line(text);
    const bool is_client = self.role_ == Role::client;
    const bool of_client = line.starts_with("CLIENT_TRAFFIC_SECRET_0 ");
    if (of_client || line.starts_with("SERVER_TRAFFIC_SECRET_0 ")) {
      auto& secret = of_client == is_client ? self.session_.sending : self.session_.receiving;
      if (from_hex(line.substr(line.rfind(' ') + 1), secret.bytes())) ++self.secrets_;
    }
    (void)guarded([&] {
      if (self.options_.keylog) self.options_.keylog(line);
      return 1;
    });
    if (const KeyLog* const log = self.credentials_->key_log()) log->add(line);
  }
};

TlsHandshake::TlsHandshake(std::shared_ptr<const Credentials> credentials, Role role,
                           TlsHandshakeOptions options)
    : credentials_(std::move(credentials)),
      role_(role),
      options_(std::move(options)),
      state_(role == Role::server ? State::hello : State::answer) {}

TlsHandshake::~TlsHandshake() = default;

Result<std::unique_ptr<TlsHandshake>> TlsHandshake::make(
    std::shared_ptr<const Credentials> credentials, Role role, TlsHandshakeOptions options) {
  std::unique_ptr<TlsHandshake> made(
      new TlsHandshake(std::move(credentials), role, std::move(options)));
  TENDON_CHECK(made->credentials_->check_process(kWhere));
  // A server creates no OpenSSL object for a peer that has sent nothing.
  if (role == Role::client) TENDON_CHECK(made->begin());
  return made;
}

void TlsHandshake::prepare(SSL_CTX* context) {
  SSL_CTX_set_alpn_select_cb(context, &Callbacks::choose_protocol, nullptr);
  SSL_CTX_set_cert_verify_callback(context, &Callbacks::check_certificate, nullptr);
  SSL_CTX_set_keylog_callback(context, &Callbacks::take_secret);
}

Result<void> TlsHandshake::begin() {
  const CryptoErrors errors;
  SSL_CTX* const context = credentials_->context();
  ssl_.reset(SSL_new(context));
  CryptoOwned<BIO> input(BIO_new(BIO_s_mem()));
  CryptoOwned<BIO> output(BIO_new(BIO_s_mem()));
  if (ssl_ == nullptr || input == nullptr || output == nullptr)
    return fail(errors.failed(kWhere, "begin a handshake"));
  // Treats an empty input as incomplete, not as the end.
  BIO_set_mem_eof_return(input.get(), -1);
  SSL_set_bio(ssl_.get(), input.release(), output.release());
  SSL_set_app_data(ssl_.get(), this);
  if (role_ == Role::server) {
    SSL_set_accept_state(ssl_.get());
    SSL_set_psk_find_session_callback(ssl_.get(), &Callbacks::find_key);
    // OpenSSL treats a handshake by a shared key as a resumption, which needs a session id context.
    SSL_set_session_id_context(ssl_.get(), as_octets(kProtocol), kProtocol.size());
    return {};
  }
  SSL_set_connect_state(ssl_.get());
  const SharedKey* const key = key_to_dial();
  if (key == nullptr && options_.own_identity.starts_with(kKeyPrefix))
    return fail(Error{ErrorCode::authentication_failed, kWhere,
                      "this end has no key any more for '" + options_.own_identity +
                          "', by which its peer knows it"});
  if (!options_.session_id.empty()) {
    client_identity_ = std::string(kSessionPrefix) + options_.session_id;
  } else if (key != nullptr) {
    client_identity_ = std::string(kKeyPrefix) + key->label;
  }
  SSL_set_psk_use_session_callback(ssl_.get(), &Callbacks::use_key);
  std::string protocols(1, static_cast<char>(kProtocol.size()));
  protocols += kProtocol;
  if (SSL_set_alpn_protos(ssl_.get(), as_octets(protocols),
                          static_cast<unsigned>(protocols.size())) != 0)
    return fail(errors.failed(kWhere, "begin a handshake"));
  return {};
}

const SharedKey* TlsHandshake::key_to_dial() const {
  const std::string_view identity = options_.own_identity;
  if (identity.empty()) return credentials_->key_to_dial();
  if (!identity.starts_with(kKeyPrefix)) return nullptr;
  return credentials_->find_key(identity.substr(kKeyPrefix.size()));
}

// The first key that OpenSSL receives for a session is the only one. It is overwritten when the
// session is freed, together with the handshake's object.
CryptoOwned<ssl_session_st> TlsHandshake::session_of(Bytes key) const {
  CryptoOwned<ssl_session_st> made(SSL_SESSION_new());
  const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl_.get(), kSuite.data());
  if (made == nullptr || suite == nullptr ||
      SSL_SESSION_set1_master_key(made.get(), as_octets(key.data()), key.size()) != 1 ||
      SSL_SESSION_set_cipher(made.get(), suite) != 1 ||
      SSL_SESSION_set_protocol_version(made.get(), TLS1_3_VERSION) != 1)
    return nullptr;
  return made;
}

Result<void> TlsHandshake::advance(Bytes input, std::vector<std::byte>& output) {
  TENDON_CHECK(credentials_->check_process(kWhere));
  switch (state_) {
    case State::hello:
      return take_hello(input, output);
    case State::answer:
      return answer(input, output);
    case State::done:
    case State::failed:
      break;
  }
  return Error{ErrorCode::internal, kWhere, "the handshake is over"};
}

Result<void> TlsHandshake::take_hello(Bytes input, std::vector<std::byte>& output) {
  hello_.insert(hello_.end(), input.begin(),
                input.begin() + static_cast<std::ptrdiff_t>(std::min(
                                    input.size(), kMaxHandshakeInputBytes - hello_.size())));
  const auto verdict = look_at_client_hello(hello_);
  if (!verdict) {
    // In plaintext, so that a peer that has lost its key learns of it: fatal, unexpected_message.
    constexpr std::array kAlert{std::byte{21}, std::byte{3}, std::byte{3}, std::byte{0},
                                std::byte{2},  std::byte{2}, std::byte{10}};
    output.insert(output.end(), kAlert.begin(), kAlert.end());
    return fail(verdict.error());
  }
  if (*verdict == ClientHello::incomplete) return {};
  TENDON_CHECK(begin());
  state_ = State::answer;
  return answer(std::exchange(hello_, {}), output);
}

Result<void> TlsHandshake::answer(Bytes input, std::vector<std::byte>& output) {
  if (role_ == Role::client && input_bytes_ == 0 && !input.empty() && !begins_as_tls(input.front()))
    return fail(Error{ErrorCode::protocol_violation, "secure.first_bytes",
                      "the peer does not speak TLS, and this end does, as it has a key or a "
                      "certificate: a listener of Tendon without one has to be started with the "
                      "same key, or a certificate; else check the address"});
  input_bytes_ += input.size();
  if (input_bytes_ > kMaxHandshakeInputBytes)
    return fail(Error{ErrorCode::protocol_violation, kWhere,
                      "the peer sent " + std::to_string(input_bytes_) +
                          " bytes before it was authenticated; legal are " +
                          std::to_string(kMaxHandshakeInputBytes)});
  const CryptoErrors errors;
  // SSL_get_error() needs an empty queue. SSL_do_handshake() would clear it in any case.
  ERR_clear_error();
  if (!input.empty() && BIO_write(SSL_get_rbio(ssl_.get()), input.data(),
                                  static_cast<int>(input.size())) != std::ssize(input))
    return fail(errors.failed(kWhere, "take the peer's bytes"));
  const int said = SSL_do_handshake(ssl_.get());
  const bool wants_more = said != 1 && SSL_get_error(ssl_.get(), said) == SSL_ERROR_WANT_READ;
  const char* waiting = nullptr;
  BIO* const source = SSL_get_wbio(ssl_.get());
  const long bytes = BIO_get_mem_data(source, &waiting);
  const Bytes sent = std::as_bytes(std::span(waiting, static_cast<std::size_t>(bytes)));
  output.insert(output.end(), sent.begin(), sent.end());
  (void)BIO_reset(source);
  if (said == 1) return finish();
  if (wants_more) return {};
  return fail(explain_failure(errors));
}

Result<void> TlsHandshake::finish() {
  const CryptoErrors errors;
  const unsigned char* protocol = nullptr;
  unsigned protocol_bytes = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &protocol_bytes);
  if (as_text(std::as_bytes(std::span(protocol, protocol_bytes))) != kProtocol)
    return fail(Error{ErrorCode::protocol_violation, kWhere,
                      "the peer speaks TLS, but not " + std::string(kProtocol) +
                          ": it is no Tendon, or another protocol's port"});

  const bool by_key = SSL_session_reused(ssl_.get()) == 1;
  // A server may decline the key of the session and show a certificate, as each member of its CA
  // can.
  if (role_ == Role::client && !options_.session_id.empty() && !by_key)
    return fail(Error{ErrorCode::protocol_violation, kWhere,
                      "the lane was answered by an end that is not of its session"});
  if (by_key) {
    const bool is_lane = client_identity_.starts_with(kSessionPrefix);
    session_.proof = is_lane ? PeerProof::session : PeerProof::key;
    session_.identity = client_identity_;
    if (!is_lane) {
      const auto label = std::string_view(client_identity_).substr(kKeyPrefix.size());
      auto id = key_id(*credentials_->find_key(label));
      if (!id) return fail(std::move(id).error());
      session_.credential = *std::move(id);
    }
  } else if (!session_.names.empty()) {
    session_.proof = PeerProof::certificate;
    session_.identity = session_.names.front();
    session_.credential = std::move(certificate_digest_);
  } else {
    return fail(Error{ErrorCode::authentication_failed, kWhere, "the peer proved nothing"});
  }
  const auto derive = [&](std::string_view label, MutableBytes secret) {
    return SSL_export_keying_material(ssl_.get(), as_octets(secret.data()), secret.size(),
                                      label.data(), label.size(), nullptr, 0, 0) == 1;
  };
  std::array<std::byte, 16> id{};
  if (!derive("EXPORTER-tendon-session", id) ||
      !derive("EXPORTER-tendon-lane", session_.lane_key.bytes()) ||
      !derive("EXPORTER-tendon-same-host", session_.host_key.bytes()) ||
      !derive("EXPORTER-tendon-renewal", session_.renewal_key.bytes()))
    return fail(errors.failed(kWhere, "derive the keys of a session"));
  if (secrets_ != 2)
    return fail(Error{ErrorCode::internal, kWhere, "libssl has not said the traffic secrets"});

  session_.id = to_hex(id);
  const char* rest = nullptr;
  const long rest_bytes = BIO_get_mem_data(SSL_get_rbio(ssl_.get()), &rest);
  const Bytes records = std::as_bytes(std::span(rest, static_cast<std::size_t>(rest_bytes)));
  session_.records.assign(records.begin(), records.end());
  ssl_.reset();
  state_ = State::done;
  return {};
}

Error TlsHandshake::fail(Error error) {
  ssl_.reset();
  state_ = State::failed;
  return error;
}

Error TlsHandshake::explain_failure(const CryptoErrors& errors) {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const int alert = ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET
                        ? reason - SSL_AD_REASON_OFFSET
                        : 0;
  const std::string openssl = alert == 0 ? errors.reason() : alert_name(errors.reason());
  if (why_refused_.empty() && !is_about_identity(error))
    return Error{ErrorCode::protocol_violation, kWhere,
                 "this is no handshake of TLS 1.3 for " + std::string(kProtocol) + ": " +
                     (alert == 0 ? openssl : "the peer ended it, by the alert '" + openssl + "'")};
  // No credentials, but a place in a link; the peer hears what it would hear of a wrong key.
  if (reason == SSL_R_BINDER_DOES_NOT_VERIFY && names_session_)
    return Error{ErrorCode::protocol_violation, kWhere,
                 client_identity_.empty()
                     ? "the peer named a session, as a lane does, of which no link lives here"
                     : "the peer named '" + client_identity_ + "', and has not its key"};
  std::string why;
  if (!why_refused_.empty()) {
    why = "the certificate of the peer is refused: " + why_refused_;
  } else if (alert == SSL_AD_BAD_CERTIFICATE) {
    why = kCertificateRefused;
  } else if (alert != 0) {
    const bool has_shown_key = role_ == Role::client && client_identity_.starts_with(kKeyPrefix);
    why = "the peer refused the credentials of this end (" + openssl +
          "): " + std::string(advice_on(alert, has_shown_key));
  } else if (reason == SSL_R_BINDER_DOES_NOT_VERIFY && client_identity_.empty()) {
    // The name that the peer sent is a stranger's text, so it is not repeated.
    why = "the peer named a key that this end does not have";
  } else if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
    why = "the peer named '" + client_identity_ + "', and has not the key that this end has for it";
  } else if (reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM && !credentials_->has_certificate()) {
    why =
        "the peer wants a certificate, and the credentials of this end are keys alone: use one "
        "key on both ends, or certificates";
  } else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    why = "the peer has shown neither a key nor a certificate";
  } else if (reason == SSL_R_BAD_SIGNATURE) {
    why = "the peer has not the private key of the certificate that it shows";
  } else {
    why = "the peer has shown no credentials that this end can check: " + openssl;
  }
  return Error{ErrorCode::authentication_failed, kWhere, std::move(why)};
}

}  // namespace tendon::v0::detail::secure
