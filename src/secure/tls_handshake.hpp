// SPDX-License-Identifier: Apache-2.0
// The handshake of a secure link: TLS 1.3 (RFC 8446) with TLS_AES_256_GCM_SHA384, X25519 or P-256,
// a shared key (psk_dhe_ke) or a certificate on both sides, ALPN `tendon/1`; no tickets, no early
// data. OpenSSL runs the handshake; its object is then destroyed, and our code handles the records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <vector>

#include "secure/credentials.hpp"
#include "secure/secret.hpp"

namespace tendon::v0::detail::secure {

/// As long as the hash SHA-384 (RFC 8446, section 7.1).
inline constexpr std::size_t kTrafficSecretBytes = 48;

/// How a peer proved its identity.
enum class PeerProof : std::uint8_t { key, certificate, session };
TENDON_WORDS(PeerProof, key, certificate, session);

/// The results of a handshake, which only its two ends know.
struct TlsSession {
  Secret<kTrafficSecretBytes> sending;      ///< for records from here
  Secret<kTrafficSecretBytes> receiving;    ///< for records from the peer
  Secret<kSharedKeyBytes> lane_key;         ///< for lanes that join this session
  Secret<kSharedKeyBytes> host_key;         ///< binds the proof of the same host to this session
  Secret<kTrafficSecretBytes> renewal_key;  ///< for renewed_secrets(), if this session follows
                                            ///< another
  std::string id;                           ///< of the session, for its lanes; not secret
  PeerProof proof = PeerProof::key;
  std::string identity;  ///< `key:LABEL`, or a name of the peer's certificate
  /// Identifies the key or the certificate, because two of one name differ: the id of the key, or
  /// the SHA-256 of the certificate.
  std::string credential;
  std::vector<std::string> names;  ///< all names of the certificate, as names_in() lists them
  std::vector<std::byte> records;  ///< bytes that arrived after the handshake
};

/// The identity of a lane's connection: this prefix and the id of the session that it joins.
inline constexpr std::string_view kSessionPrefix = "session:";

/// TlsHandshakeOptions::own_identity of a client that shows its certificate, whatever keys it has.
inline constexpr std::string_view kByCertificate = "certificate";

/// The key of a session that a lane wants to join; nothing for one that nobody has.
using FindSession = std::function<std::optional<Secret<kSharedKeyBytes>>(std::string_view id)>;

/// The options of a handshake besides the credentials.
struct TlsHandshakeOptions {
  /// The peer must have this name in its certificate: a URI, a DNS name, an address, or NAME for
  /// the URI tendon:NAME. Empty: any name will do. A server that expects a name takes no key; a
  /// client that does is kByCertificate.
  std::string expected_peer{};
  /// A client that joins a session as a lane: the session's id and its lane_key, which replace the
  /// credentials.
  std::string session_id{};
  Bytes session_key{};  ///< must outlive the handshake
  /// For a client that must again prove the `identity` that its peer knows from another session.
  /// `key:LABEL` is proved by the key of that label only, any other by the certificate. Empty: the
  /// first key, or the certificate where there is no key.
  std::string own_identity{};
  /// A server: finds the sessions that lanes may join. If absent, there are none.
  FindSession find_session{};
  /// Receives lines in the NSS Key Log format, with which others can read all traffic.
  std::function<void(std::string_view line)> keylog{};
};

/// One end of the handshake. It does no I/O; the caller moves the bytes.
///
///   state    role    input                            next
///   -------  ------  -------------------------------  -------
///   hello    server  a whole ClientHello of <= 4 KiB  answer
///   answer   both    the bytes that TLS expects       answer, done
///   any      both    anything else, too much          failed
///
/// Owns:    OpenSSL's object until the end, on a server from its whole ClientHello on; a share of
///          the credentials.
/// Threads: one at a time.
/// Errors:  authentication_failed where the peer, or this end in the peer's view, has the wrong
///          identity; protocol_violation for everything else. A refused peer receives one of two
///          alerts, for keys or for certificates, whatever the reason; the error here has the
///          reason. `forked` in a child of the process that loaded the credentials.
/// Blocks:  never.
/// Cost:    0.2 ms of CPU with a key, 0.7 ms with certificates; some 60 KiB while OpenSSL's object
///          lives.
class TlsHandshake {
 public:
  enum class Role : std::uint8_t { client, server };
  enum class State : std::uint8_t { hello, answer, done, failed };

  /// Errors: system for lack of memory; invalid_argument for a client without credentials.
  [[nodiscard]] static Result<std::unique_ptr<TlsHandshake>> make(
      std::shared_ptr<const Credentials> credentials, Role role, TlsHandshakeOptions options = {});
  /// Called by Credentials: lets OpenSSL's callbacks in each handshake reach its TlsHandshake.
  static void prepare(SSL_CTX* context);
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;
  ~TlsHandshake();

  /// Takes received bytes, and appends to `output` the bytes to be sent, including an alert before
  /// an error. A client begins without input. Call it until state() is done or failed.
  [[nodiscard]] Result<void> advance(Bytes input, std::vector<std::byte>& output);
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Returns the session, once, in state `done`.
  [[nodiscard]] TlsSession take_session() { return std::move(session_); }

 private:
  TlsHandshake(std::shared_ptr<const Credentials> credentials, Role role,
               TlsHandshakeOptions options);
  struct Callbacks;

  [[nodiscard]] Result<void> begin();
  [[nodiscard]] Result<void> take_hello(Bytes input, std::vector<std::byte>& output);
  [[nodiscard]] Result<void> answer(Bytes input, std::vector<std::byte>& output);
  [[nodiscard]] Result<void> finish();
  [[nodiscard]] Error fail(Error error);
  [[nodiscard]] Error explain_failure(const CryptoErrors& errors);
  [[nodiscard]] CryptoOwned<ssl_session_st> session_of(Bytes key) const;
  /// The client's key from the credentials; null: it shows its certificate.
  [[nodiscard]] const SharedKey* key_to_dial() const;

  const std::shared_ptr<const Credentials> credentials_;
  const Role role_;
  const TlsHandshakeOptions options_;
  State state_;
  CryptoOwned<SSL> ssl_;
  std::size_t input_bytes_ = 0;
  unsigned secrets_ = 0;          // how many of the two traffic secrets are known
  std::vector<std::byte> hello_;  // of a server, until it is complete
  std::string why_refused_;       // for a certificate
  std::string certificate_digest_;
  std::string client_identity_;  // as sent; on a server, set if this end has its key
  bool names_session_ = false;   // on a server: the client names a session
  TlsSession session_;
};

}  // namespace tendon::v0::detail::secure
