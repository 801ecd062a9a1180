// SPDX-License-Identifier: Apache-2.0
// The alerts that a refused client of OpenSSL alone reads: one for keys, one for certificates,
// whatever the fault. Such a client is not admitted over older TLS either.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "secure/tls_handshake.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

using detail::CryptoOwned;
using detail::secure::TlsHandshake;

/// A key, as a client of OpenSSL sends it.
struct SaidKey {
  std::string identity;
  char fill;
};

class AlertedClient {
 public:
  AlertedClient()
      : context_(SSL_CTX_new_ex(detail::crypto_library(), nullptr, TLS_client_method())) {
    SSL_CTX_clear_options(context_.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_alpn_protos(context_.get(), reinterpret_cast<const unsigned char*>("\x08tendon/1"),
                            9);
  }
  [[nodiscard]] SSL_CTX* context() const { return context_.get(); }
  AlertedClient& show(const Certificate& own) {
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), own.certificate().get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), own.key().get()), 1);
    return *this;
  }
  AlertedClient& say(const SaidKey& key) {
    key_ = key;
    SSL_CTX_set_app_data(context_.get(), this);
    SSL_CTX_set_psk_use_session_callback(context_.get(), &use_key);
    return *this;
  }

  struct Met {
    std::optional<ErrorCode> code;  // of the server
    int alert = 0;                  // received by the client
  };
  Met meet(SharedCredentials credentials) {
    const CryptoOwned<SSL> ssl(SSL_new(context_.get()));
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(ssl.get()), -1);
    SSL_set_connect_state(ssl.get());
    const auto server =
        TlsHandshake::make(std::move(credentials), TlsHandshake::Role::server).value();
    Met met;
    for (int turn = 0; turn < 6; ++turn) {
      ERR_clear_error();
      std::array<char, 100> heard{};
      // A client of TLS 1.3 finishes before it learns about its certificate.
      const int done = SSL_read(ssl.get(), heard.data(), heard.size());
      if (done <= 0 && SSL_get_error(ssl.get(), done) == SSL_ERROR_SSL) {
        const int reason = ERR_GET_REASON(ERR_peek_error());
        met.alert = reason > SSL_AD_REASON_OFFSET ? reason - SSL_AD_REASON_OFFSET : 0;
        return met;
      }
      const char* data = nullptr;
      const long bytes = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &data);
      const Bytes said = std::as_bytes(std::span(data, static_cast<std::size_t>(bytes)));
      if (said.empty() || server->state() == TlsHandshake::State::done || met.code) return met;
      std::vector<std::byte> output;
      if (const auto taken = server->advance(said, output); !taken) met.code = taken.error().code;
      (void)BIO_reset(SSL_get_wbio(ssl.get()));
      BIO_write(SSL_get_rbio(ssl.get()), output.data(), static_cast<int>(output.size()));
    }
    return met;
  }

 private:
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* bytes,
                     SSL_SESSION** session) {
    const auto* self =
        static_cast<const AlertedClient*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    const std::string secret(detail::kSharedKeyBytes, self->key_.fill);
    const unsigned char suite[] = {0x13, 0x02};
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(secret.data()),
                                secret.size());
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    *id = reinterpret_cast<const unsigned char*>(self->key_.identity.data());
    *bytes = self->key_.identity.size();
    return 1;
  }

  CryptoOwned<SSL_CTX> context_;
  SaidKey key_;
};

TEST(Alerts, AreOneForAllKeys) {
  const auto fleet = holder_of_key("fleet", 'a');
  for (const SaidKey& key :
       {SaidKey{"key:fleet", 'b'}, SaidKey{"key:other", 'a'}, SaidKey{"key:", 'a'},
        SaidKey{"session:17", 'a'}, SaidKey{"fleet", 'a'}, SaidKey{std::string(300, 'x'), 'a'}}) {
    const auto met = AlertedClient().say(key).meet(fleet);
    EXPECT_EQ(met.code, ErrorCode::authentication_failed) << key.identity;
    EXPECT_EQ(met.alert, SSL_AD_ILLEGAL_PARAMETER) << key.identity;
  }
  EXPECT_EQ(AlertedClient().say({"key:fleet", 'a'}).meet(fleet).code, std::nullopt);
}

TEST(Alerts, AreOneForAllCertificates) {
  const Certificate ours = Certificate::authority("ours");
  const auto server = holder_of(ours.sign({}), ours);
  for (const Certificate& bad :
       {ours.sign({.valid_from_s = -120, .valid_to_s = -60}), ours.sign({.valid_from_s = 600}),
        ours.sign({.usage = "serverAuth"}), ours.sign({.names = ""}), Certificate::root({}),
        Certificate::authority("foreign").sign({}), Certificate::authority("ours").sign({})}) {
    const auto met = AlertedClient().show(bad).meet(server);
    EXPECT_EQ(met.code, ErrorCode::authentication_failed);
    EXPECT_EQ(met.alert, SSL_AD_BAD_CERTIFICATE);
  }
  EXPECT_EQ(AlertedClient().show(ours.sign({})).meet(server).code, std::nullopt);
}

TEST(Alerts, AskForACertificateOfWhoShowsNone) {
  const Certificate ours = Certificate::authority("ours");
  const auto met = AlertedClient().meet(holder_of(ours.sign({}), ours));
  EXPECT_EQ(met.code, ErrorCode::authentication_failed);
  EXPECT_EQ(met.alert, SSL_AD_CERTIFICATE_REQUIRED);
}

TEST(Alerts, AreForOlderTlsWithARightCertificateToo) {
  const Certificate ours = Certificate::authority("ours");
  AlertedClient older;
  SSL_CTX_set_max_proto_version(older.context(), TLS1_2_VERSION);
  const auto met = older.show(ours.sign({})).meet(holder_of(ours.sign({}), ours));
  EXPECT_EQ(met.code, ErrorCode::protocol_violation);
  EXPECT_EQ(met.alert, SSL_AD_PROTOCOL_VERSION);
}

}  // namespace
}  // namespace tendon::test
