// SPDX-License-Identifier: Apache-2.0
// Peers that a secure listener refuses, and listeners that a client refuses, with the error that a
// program receives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/strangers.hpp"
#include "support/expect.hpp"
#include "support/log_lines.hpp"
#include "support/raw_socket.hpp"
#include "support/secure/holders.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

Security secured_by(SharedCredentials credentials) {
  return {Profile::secure, std::move(credentials), {}};
}

class RefusedPeers : public testing::Test {
 protected:
  struct Row {
    std::string name;
    SharedCredentials dials;
    SharedCredentials listens;
    std::string why;  // a part of the error at the end that detected the fault
  };
  void expect_refused(const Row& row) {
    SCOPED_TRACE(row.name);
    const LogLines lines;
    Listener listener =
        Listener::bind(server_, "127.0.0.1:0", {.security = secured_by(row.listens)}).value();
    const auto pipe =
        Pipe::connect(client_, listener.address(), kPatience, {.security = secured_by(row.dials)});
    EXPECT_TRUE(fails_with(pipe, ErrorCode::authentication_failed));
    EXPECT_TRUE(fails_with(listener.accept(std::chrono::milliseconds(0)), ErrorCode::timeout));
    if (pipe || pipe.error().detail.find(row.why) != std::string::npos) return;
    // The listener detected it: its log has it, or counts it.
    EXPECT_TRUE(eventually([&] {
      detail::tell_refused_strangers();
      return lines.have(row.why) || lines.have("more that have no line");
    })) << pipe.error().detail;
  }
  [[nodiscard]] SharedCredentials good() const { return holder_of(ours_.sign({}), ours_); }

  const Certificate ours_ = Certificate::authority("ours");
  Context client_ = Context::create({.name = "client", .transport = Transport::tcp}).value();
  Context server_ = Context::create({.name = "server"}).value();
};

TEST_F(RefusedPeers, ByKeys) {
  detail::secure::CredentialParts two;
  for (const char fill : {'a', 'b'}) {
    two.keys.push_back(
        {std::string("label-") + fill,
         detail::SecretBytes::copy_of(as_bytes(std::string(detail::kSharedKeyBytes, fill))),
         {}});
  }
  const auto both = detail::secure::Credentials::make(std::move(two)).value();
  const auto fleet = holder_of_key("fleet", 'a');
  for (const Row& row : {
           Row{"a wrong key", holder_of_key("fleet", 'b'), fleet, "has not the key"},
           Row{"an unknown label", holder_of_key("other", 'a'), fleet, "does not have"},
           Row{"the keys of two labels swapped", holder_of_key("label-a", 'b'), both,
               "has not the key"},
           Row{"a key at a listener of certificates", fleet, good(), "credentials"},
           Row{"a certificate at a listener of keys", good(), fleet, "credentials"},
       })
    expect_refused(row);
}

TEST_F(RefusedPeers, ByCertificates) {
  const Certificate first = ours_.sign_authority("the first");
  const Certificate second = first.sign_authority("the second");
  const Certificate third = second.sign_authority("the third");
  const auto bad = [&](const CertificateText& text) { return holder_of(ours_.sign(text), ours_); };
  struct Bad {
    std::string name;
    SharedCredentials holder;
    std::string why;
  };
  const std::vector<Bad> of_either{
      {"expired", bad({.valid_from_s = -120, .valid_to_s = -60}), "expired"},
      {"not yet valid", bad({.valid_from_s = 600}), "not yet valid"},
      {"self-signed", holder_of(Certificate::root({}), ours_), "signed by itself"},
      {"of a foreign CA", holder_of(Certificate::authority("foreign").sign({}), ours_),
       "of another CA"},
      {"of a CA of the same name", holder_of(Certificate::authority("ours").sign({}), ours_),
       "of another CA"},
      {"of a chain too long", holder_of(third.sign({}), ours_, {&third, &second, &first}),
       "more than 2 certificates"},
      {"of nobody", bad({.names = ""}), "names nobody"},
      {"of an address", bad({.names = "IP:127.0.0.1"}), "names nobody"},
  };
  for (const Bad& row : of_either) {
    expect_refused({"a client's, " + row.name, row.holder, good(), row.why});
    expect_refused({"a listener's, " + row.name, good(), row.holder, row.why});
  }
  for (const Row& row : {
           Row{"a client's, for servers alone", bad({.usage = "serverAuth"}), good(), "purpose"},
           Row{"a listener's, for clients alone", good(), bad({.usage = "clientAuth"}), "purpose"},
           Row{"a listener's, of another name", good(),
               bad({.names = "URI:tendon://robot/8, IP:127.0.0.2"}), "'127.0.0.1' is expected"},
       })
    expect_refused(row);
}

// Shows that the rows above are refused only for their fault.
TEST_F(RefusedPeers, AreNotThoseWithNothingWrong) {
  for (const auto& holder : {good(), holder_of_key("fleet", 'a')}) {
    // A Context has one name, so another Context has the other credentials.
    Context client = Context::create({.transport = Transport::tcp}).value();
    Listener listener =
        Listener::bind(server_, "127.0.0.1:0", {.security = secured_by(holder)}).value();
    EXPECT_TRUE(succeeds(
        Pipe::connect(client, listener.address(), kPatience, {.security = secured_by(holder)})));
    EXPECT_TRUE(succeeds(listener.accept(kPatience)));
  }
}

// Each of them has a line or is counted in one, and lines keep their pace whatever arrives.
TEST_F(RefusedPeers, HaveALineASecondAndAreAllCounted) {
  Listener listener =
      Listener::bind(server_, "127.0.0.1:0", {.security = secured_by(holder_of_key("fleet", 'a'))})
          .value();
  detail::tell_refused_strangers();
  const LogLines lines;
  constexpr std::size_t kRefused = 30;
  for (std::size_t n = 0; n < kRefused; ++n) {
    EXPECT_TRUE(fails_with(
        Pipe::connect(client_, listener.address(), kPatience,
                      {.security = secured_by(holder_of_key("fleet", static_cast<char>('b' + n)))}),
        ErrorCode::authentication_failed));
  }
  std::size_t said = 0;
  std::size_t counted = 0;
  EXPECT_TRUE(eventually([&] {
    detail::tell_refused_strangers();
    said = counted = 0;
    for (const std::string& line : lines.all()) {
      if (line.find("has not the key") != std::string::npos) ++said;
      const auto at = line.find("refused ");
      if (line.find("more that have no line") != std::string::npos)
        counted += std::stoul(line.substr(at + 8));
    }
    return said + counted >= kRefused;
  }));
  EXPECT_EQ(said + counted, kRefused);
  EXPECT_LT(said, kRefused);
}

/// An end that uses OpenSSL alone, over a connection; it may do things that ours never does.
class Foreign {
 public:
  explicit Foreign(const SSL_METHOD* method)
      : context_(SSL_CTX_new_ex(detail::crypto_library(), nullptr, method)) {}
  [[nodiscard]] SSL_CTX* context() const { return context_.get(); }
  void show(const Certificate& own) const {
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), own.certificate().get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), own.key().get()), 1);
  }
  /// Accepts any protocol of the application.
  void agree_to_any_protocol() const {
    SSL_CTX_set_alpn_select_cb(
        context_.get(),
        [](SSL*, const unsigned char** chosen, unsigned char* bytes, const unsigned char* offered,
           unsigned, void*) {
          *chosen = offered + 1;
          *bytes = offered[0];
          return SSL_TLSEXT_ERR_OK;
        },
        nullptr);
  }
  /// Runs the handshake and reads until the peer stops.
  void meet(int fd, bool is_server) const {
    const detail::CryptoOwned<SSL> ssl(SSL_new(context_.get()));
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(ssl.get()), -1);
    if (is_server)
      SSL_set_accept_state(ssl.get());
    else
      SSL_set_connect_state(ssl.get());
    for (;;) {
      std::array<char, 4096> part{};
      const int done = SSL_read(ssl.get(), part.data(), part.size());
      const bool goes_on = done > 0 || SSL_get_error(ssl.get(), done) == SSL_ERROR_WANT_READ;
      const char* said = nullptr;
      const long bytes = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &said);
      send_all(fd, {said, static_cast<std::size_t>(bytes)});
      (void)BIO_reset(SSL_get_wbio(ssl.get()));
      if (!goes_on) return;
      const ssize_t heard = TEMP_FAILURE_RETRY(recv(fd, part.data(), part.size(), 0));
      if (heard <= 0) return;
      BIO_write(SSL_get_rbio(ssl.get()), part.data(), static_cast<int>(heard));
    }
  }

 private:
  detail::CryptoOwned<SSL_CTX> context_;
};

TEST_F(RefusedPeers, ThatListenAndSpeakOtherTls) {
  const Certificate own = ours_.sign({});
  const Foreign older(TLS_server_method());
  SSL_CTX_set_max_proto_version(older.context(), TLS1_2_VERSION);
  older.agree_to_any_protocol();
  const Foreign no_protocol(TLS_server_method());
  const Foreign other_protocol(TLS_server_method());
  SSL_CTX_set_alpn_select_cb(
      other_protocol.context(),
      [](SSL*, const unsigned char**, unsigned char*, const unsigned char*, unsigned, void*) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
      },
      nullptr);
  for (const Foreign* foreign : {&older, &no_protocol, &other_protocol}) {
    foreign->show(own);
    const RawListener listener;
    std::thread serving([&] {
      const detail::OwnedFd fd = listener.accept();
      foreign->meet(fd.get(), true);
    });
    EXPECT_TRUE(fails_with(
        Pipe::connect(client_, listener.address(), kPatience, {.security = secured_by(good())}),
        ErrorCode::protocol_violation));
    serving.join();
  }
}

TEST_F(RefusedPeers, ThatDialAndShowNothing) {
  Listener listener =
      Listener::bind(server_, "127.0.0.1:0", {.security = secured_by(good())}).value();
  const Foreign nobody(TLS_client_method());
  SSL_CTX_clear_options(nobody.context(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_alpn_protos(nobody.context(), reinterpret_cast<const unsigned char*>("\x08tendon/1"),
                          9);
  const LogLines lines;
  EXPECT_TRUE(eventually([&] {
    const detail::OwnedFd fd = connect_raw(listener.address());
    nobody.meet(fd.get(), false);
    detail::tell_refused_strangers();
    return lines.have("neither a key nor a certificate") || lines.have("more that have no line");
  }));
  EXPECT_TRUE(fails_with(listener.accept(std::chrono::milliseconds(0)), ErrorCode::timeout));
}

/// A member between two others. It has a session with each, and relays their plaintext, which it
/// sees completely.
class MemberBetween {
 public:
  MemberBetween(std::string to, SharedCredentials credentials)
      : to_(std::move(to)), credentials_(std::move(credentials)), thread_([this] { stand(); }) {}
  ~MemberBetween() {
    ends_ = true;
    listener_.close();
    thread_.join();
  }
  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  /// The number of relayed plaintext bytes, both ways.
  [[nodiscard]] std::size_t passed_bytes() const { return passed_bytes_; }

 private:
  using TlsRole = detail::secure::TlsHandshake::Role;

  [[nodiscard]] std::unique_ptr<detail::SecureStream> stream_over(detail::OwnedFd fd,
                                                                  TlsRole role) const {
    fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    return detail::SecureStream::make(std::make_unique<detail::SocketStream>(std::move(fd)),
                                      {.role = role, .credentials = credentials_})
        .value();
  }
  void stand() {
    std::vector<std::thread> connections;
    while (!ends_) {
      detail::OwnedFd here = listener_.accept();
      if (!here) break;
      connections.emplace_back([this, fd = std::move(here)]() mutable { pass_on(std::move(fd)); });
    }
    for (std::thread& connection : connections) connection.join();
  }
  void pass_on(detail::OwnedFd fd) {
    const auto here = stream_over(std::move(fd), TlsRole::server);
    const auto there = stream_over(connect_raw(to_), TlsRole::client);
    while (!ends_) {
      const bool goes_on = pump(*here, *there) && pump(*there, *here);
      if (!goes_on) return;
      std::array<pollfd, 2> both{{{here->fd(), POLLIN, 0}, {there->fd(), POLLIN, 0}}};
      (void)poll(both.data(), both.size(), 10);
    }
  }
  bool pump(detail::SecureStream& from, detail::SecureStream& to) {
    using State = detail::StreamIo::State;
    std::array<char, 4096> part{};
    const iovec room{part.data(), part.size()};
    for (;;) {
      const detail::StreamIo in = from.read({&room, 1});
      if (in.state == State::ended || in.state == State::lost) return false;
      std::size_t left = in.bytes;
      passed_bytes_ += left;
      do {
        const iovec piece{part.data() + (in.bytes - left), left};
        const detail::StreamIo out = to.write({&piece, left == 0 ? 0u : 1u});
        if (out.state == State::lost || ends_) return false;
        left -= out.bytes;
      } while (left != 0);
      if (in.state != State::moved) return true;
    }
  }

  const std::string to_;
  const SharedCredentials credentials_;
  RawListener listener_;
  std::atomic<bool> ends_{false};
  std::atomic<std::size_t> passed_bytes_{0};
  std::thread thread_;
};

// Without this, it would have a link of shared memory with each. The proof of the two at the
// rendezvous covers a connection and a session that both have.
TEST_F(RefusedPeers, ThatPassOnAProofOfTheSameHost) {
  const auto fleet = holder_of_key("fleet", 'a');
  const LogLines lines;
  Listener listener =
      Listener::bind(server_, "127.0.0.1:0", {.security = secured_by(fleet)}).value();
  const MemberBetween between(listener.address(), fleet);
  Context here = Context::create({.name = "here"}).value();
  // Each call tries the proof once, and the line of the first may exceed the pace of the log.
  EXPECT_TRUE(eventually([&] { return lines.have("which has the credentials, stands between"); },
                         [&] {
                           EXPECT_TRUE(fails_with(Pipe::connect(here, between.address(), kPatience,
                                                                {.security = secured_by(fleet)}),
                                                  ErrorCode::protocol_violation));
                         }));
  EXPECT_NE(between.passed_bytes(), 0u);
  EXPECT_TRUE(fails_with(listener.accept(std::chrono::milliseconds(0)), ErrorCode::timeout));
}

}  // namespace
}  // namespace tendon::test
