// SPDX-License-Identifier: Apache-2.0
// The handshake of a secure link: TLS 1.3 (RFC 8446) with TLS_AES_256_GCM_SHA384, X25519 or P-256,
// a shared key (psk_dhe_ke) or a certificate on both sides, ALPN `tendon/1`; no tickets, no early
// data. OpenSSL makes it; afterwards its object goes, and records are ours.
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

/// How a peer proved who it is.
enum class PeerProof : std::uint8_t { key, certificate, session };
TENDON_WORDS(PeerProof, key, certificate, session);

/// What both ends know after a handshake, and nobody else.
struct TlsSession {
  Secret<kTrafficSecretBytes> sending;      ///< of the records from here
  Secret<kTrafficSecretBytes> receiving;    ///< of the records from the peer
  Secret<kSharedKeyBytes> lane_key;         ///< of lanes that join this session
  Secret<kSharedKeyBytes> host_key;         ///< binds the proof of the same host to this session
  Secret<kTrafficSecretBytes> renewal_key;  ///< of renewed_secrets(), where it follows another one
  std::string id;                           ///< of the session, for its lanes; no secret of itself
  PeerProof proof = PeerProof::key;
  std::string identity;  ///< `key:LABEL`, or a name of the peer's certificate
  /// Which key or certificate it was: two of one name are two. The id of the key, or the SHA-256 of
  /// the certificate.
  std::string credential;
  std::vector<std::string> names;  ///< all of the certificate, as names_in() has them
  std::vector<std::byte> records;  ///< what arrived behind the handshake
};

/// The identity of a lane's connection is this and the id of the session that it joins.
inline constexpr std::string_view kSessionPrefix = "session:";

/// The key of a session that a lane wants to join; nothing for one that nobody has.
using FindSession = std::function<std::optional<Secret<kSharedKeyBytes>>(std::string_view id)>;

/// What a handshake is about, beside the credentials.
struct TlsHandshakeOptions {
  /// The peer must have this name in its certificate: a URI, a DNS name, an address, or NAME for
  /// the URI tendon:NAME. Empty: any name will do. It says nothing about keys.
  std::string expected_peer{};
  /// A client that joins a session as a lane: the session's id and lane_key, and nothing else of
  /// the credentials.
  std::string session_id{};
  Bytes session_key{};  ///< lives as long as the handshake
  /// A client that was `identity` to its peer in another session, and has to be the same again:
  /// `key:LABEL` is proved by the key of that label alone, anything else by the certificate. Empty:
  /// the first key, or the certificate where there is none.
  std::string own_identity{};
  /// A server: finds the sessions that lanes may join. Left out: none.
  FindSession find_session{};
  /// Gets lines of the format NSS Key Log, with which others can read all that is sent.
  std::function<void(std::string_view line)> keylog{};
};

/// One end of the handshake. It does no I/O: the caller moves the bytes.
///
///   state    role    input                            next
///   -------  ------  -------------------------------  -------
///   hello    server  a whole ClientHello of <= 4 KiB  answer
///   answer   both    what TLS expects                 answer, done
///   any      both    anything else, too much          failed
///
/// Owns:    OpenSSL's object, of a server from its whole ClientHello on, until it is done; a share
///          of the credentials.
/// Threads: one at a time.
/// Errors:  authentication_failed where the peer, or this end for it, is not who it has to be;
///          protocol_violation for everything else. A refused peer learns one of two alerts, for
///          keys or for certificates, whatever the reason; the reason is in the error here.
///          `forked` in a child of the process that loaded the credentials.
/// Blocks:  never.
/// Cost:    0.2 ms of CPU with a key, 0.7 ms with certificates; some 60 KiB while OpenSSL's object
///          lives.
class TlsHandshake {
 public:
  enum class Role : std::uint8_t { client, server };
  enum class State : std::uint8_t { hello, answer, done, failed };

  /// Errors: system for want of memory; invalid_argument for a client without credentials.
  [[nodiscard]] static Result<std::unique_ptr<TlsHandshake>> make(
      std::shared_ptr<const Credentials> credentials, Role role, TlsHandshakeOptions options = {});
  /// For Credentials: what OpenSSL asks during each handshake is answered by its TlsHandshake.
  static void prepare(SSL_CTX* context);
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;
  ~TlsHandshake();

  /// Takes what arrived, and appends to `output` what has to be sent, an alert before an error
  /// included. A client begins without input. Call it until state() is done or failed.
  [[nodiscard]] Result<void> advance(Bytes input, std::vector<std::byte>& output);
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Once, when it is done.
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
  /// A client's, of the credentials; null: it shows its certificate.
  [[nodiscard]] const SharedKey* key_to_dial() const;

  const std::shared_ptr<const Credentials> credentials_;
  const Role role_;
  const TlsHandshakeOptions options_;
  State state_;
  CryptoOwned<SSL> ssl_;
  std::size_t input_bytes_ = 0;
  unsigned secrets_ = 0;          // of the two traffic secrets
  std::vector<std::byte> hello_;  // of a server, until it is whole
  std::string why_refused_;       // of a certificate
  std::string certificate_digest_;
  std::string client_identity_;  // as it was sent; received, where this end has its key
  bool names_session_ = false;   // of a server: the client does
  TlsSession session_;
};

}  // namespace tendon::v0::detail::secure
