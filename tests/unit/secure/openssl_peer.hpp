// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "secure/octets.hpp"
#include "secure/record_layer.hpp"

namespace tendon::test {

using Buffer = std::vector<std::byte>;

/// Parses "00ff" into bytes.
inline Buffer from_hex(std::string_view text) {
  Buffer bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(text.substr(at, 2)), nullptr, 16)));
  return bytes;
}

/// The end of a connection that is OpenSSL's; the other one will be ours.
enum class OpensslEnd { client, server };

/// One end of a TLS 1.3 connection after its handshake. OpenSSL was also the other end, and
/// exported its traffic secrets.
class OpensslPeer {
 public:
  explicit OpensslPeer(OpensslEnd end) {
    const Ssl client = make(TLS_client_method());
    const Ssl server = make(TLS_server_method());
    SSL_set_connect_state(client.get());
    SSL_set_accept_state(server.get());
    bool done = false;
    for (int turn = 0; turn < 8 && !done; ++turn) {
      done = SSL_do_handshake(client.get()) == 1;
      move(client.get(), server.get());
      done = SSL_do_handshake(server.get()) == 1 && done;
      move(server.get(), client.get());
    }
    EXPECT_TRUE(done);
    EXPECT_STREQ(SSL_get_cipher(server.get()), "TLS_AES_256_GCM_SHA384");
    ssl_.reset(another_reference(end == OpensslEnd::client ? client.get() : server.get()));
    const auto& ours = end == OpensslEnd::client ? server_secret_ : client_secret_;
    const auto& theirs = end == OpensslEnd::client ? client_secret_ : server_secret_;
    copy(ours, secrets_.sending);
    copy(theirs, secrets_.receiving);
  }
  OpensslPeer(const OpensslPeer&) = delete;
  OpensslPeer& operator=(const OpensslPeer&) = delete;

  /// Returns the secrets of the end that will be ours; once.
  detail::secure::RecordSecrets take_secrets() { return std::move(secrets_); }

  /// Returns the records for `content`.
  Buffer write(Bytes content) {
    if (!content.empty()) {
      EXPECT_EQ(SSL_write(ssl_.get(), content.data(), static_cast<int>(content.size())),
                static_cast<int>(content.size()));
    }
    return sent();
  }
  /// Returns the contents of the arriving records. It stops at the first error; see last_error().
  Buffer read(Bytes arriving) {
    BIO_write(SSL_get_rbio(ssl_.get()), arriving.data(), static_cast<int>(arriving.size()));
    Buffer read;
    std::array<std::byte, 20'000> part;
    int size = 0;
    while ((size = SSL_read(ssl_.get(), part.data(), static_cast<int>(part.size()))) > 0)
      read.insert(read.end(), part.begin(), part.begin() + size);
    last_error_ = SSL_get_error(ssl_.get(), size);
    return read;
  }
  [[nodiscard]] int last_error() const { return last_error_; }
  /// Returns its pending output besides content: answers and alerts.
  Buffer sent() {
    Buffer bytes(BIO_ctrl_pending(SSL_get_wbio(ssl_.get())));
    BIO_read(SSL_get_wbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }
  [[nodiscard]] SSL* ssl() { return ssl_.get(); }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  using Ssl = std::unique_ptr<SSL, Free>;

  static SSL* another_reference(SSL* ssl) {
    SSL_up_ref(ssl);
    return ssl;
  }
  static void copy(const Buffer& from, detail::secure::TrafficSecret& to) {
    ASSERT_EQ(from.size(), to.bytes().size());
    std::copy(from.begin(), from.end(), to.bytes().begin());
  }
  static void move(SSL* from, SSL* to) {
    std::array<std::byte, 16'384> part;
    int size = 0;
    while ((size = BIO_read(SSL_get_wbio(from), part.data(), part.size())) > 0)
      BIO_write(SSL_get_rbio(to), part.data(), size);
  }
  // The key that both ends share in advance, so that no certificate takes time here.
  static SSL_SESSION* shared_session(SSL* ssl) {
    const std::array<unsigned char, 48> key{1, 2, 3};
    constexpr std::array<unsigned char, 2> kSuite{0x13, 0x02};
    SSL_SESSION* const session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(session, key.data(), key.size());
    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuite.data()));
    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    return session;
  }
  Ssl make(const SSL_METHOD* method) {
    const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(method));
    SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384");
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_psk_use_session_callback(
        context.get(), [](SSL* ssl, const EVP_MD*, const unsigned char** identity,
                          std::size_t* size, SSL_SESSION** session) {
          *identity = reinterpret_cast<const unsigned char*>("test");
          *size = 4;
          *session = shared_session(ssl);
          return 1;
        });
    SSL_CTX_set_psk_find_session_callback(
        context.get(), [](SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** session) {
          *session = shared_session(ssl);
          return 1;
        });
    SSL_CTX_set_keylog_callback(context.get(), [](const SSL* ssl, const char* line) {
      static_cast<OpensslPeer*>(SSL_get_app_data(ssl))->hear_secret(line);
    });
    Ssl ssl(SSL_new(context.get()));
    SSL_set_app_data(ssl.get(), this);
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    return ssl;
  }
  // "CLIENT_TRAFFIC_SECRET_0 RANDOM SECRET"
  void hear_secret(std::string_view line) {
    const Buffer secret = from_hex(line.substr(line.rfind(' ') + 1));
    if (line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) client_secret_ = secret;
    if (line.starts_with("SERVER_TRAFFIC_SECRET_0 ")) server_secret_ = secret;
  }

  Ssl ssl_;
  Buffer client_secret_;
  Buffer server_secret_;
  detail::secure::RecordSecrets secrets_;
  int last_error_ = SSL_ERROR_NONE;
};

}  // namespace tendon::test
