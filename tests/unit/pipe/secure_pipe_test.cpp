// SPDX-License-Identifier: Apache-2.0
// Pipes, listeners and servers with Profile::secure, on each path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <tendon/tendon.hpp>
#include <thread>

#include "core/text.hpp"
#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/credentials.hpp"
#include "secure/key_file.hpp"
#include "support/expect.hpp"
#include "support/log_lines.hpp"
#include "support/sanitizer.hpp"
#include "support/scratch_dir.hpp"
#include "support/secure/process_memory.hpp"

namespace tendon::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class SecurePipe : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const {
    return (scratch_.path() / name).string();
  }
  [[nodiscard]] Security key(const std::string& name) {
    if (!std::filesystem::exists(file(name)))
      (void)detail::make_key_file(file(name), "fleet").value();
    return Security::load({.key = file(name)}).value();
  }
  /// A listener and a pipe to it, of two Contexts.
  void open(const std::string& address, const Security& security, Transport transport) {
    here_ = Context::create({.name = "here", .transport = transport}).value();
    there_ = Context::create({.name = "there"}).value();
    listener_ = Listener::bind(*there_, address, {.security = security}).value();
    auto pipe = Pipe::connect(*here_, listener_->address(), kPatience, {.security = security});
    ASSERT_TRUE(succeeds(pipe));
    out_ = *std::move(pipe);
    in_ = listener_->accept(kPatience).value();
  }
  /// Checks that both ends know this identity and proof of each other.
  void expect_proved(const std::string& identity, IdentityProof proof) const {
    for (const Pipe* pipe : {&*out_, &*in_}) {
      EXPECT_EQ(pipe->peer().identity, identity);
      EXPECT_EQ(pipe->peer().proof, proof);
    }
    EXPECT_EQ(out_->peer().name, "there");
    EXPECT_EQ(in_->peer().name, "here");
    EXPECT_EQ(here_->members().at(0).identity, identity);
  }
  void expect_moved(std::int64_t count) {
    TensorDict sent;
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::int64_t n = 0; n < count; ++n) values[static_cast<std::size_t>(n)] = n * n;
    sent.set("x", Tensor::of<std::int64_t>({count}, std::span<const std::int64_t>(values)));
    std::thread sender([&] { EXPECT_TRUE(succeeds(out_->send(sent, kPatience))); });
    auto received = in_->recv(kPatience);
    sender.join();
    ASSERT_TRUE(succeeds(received));
    const auto bytes = (*received)["x"].bytes();
    EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
    EXPECT_EQ(bytes.size(), values.size() * sizeof(std::int64_t));
  }

  /// Those of the member robot-7, which this makes.
  [[nodiscard]] CredentialFiles member_files() const {
    using std::chrono::hours;
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    const detail::Validity validity{now - hours(1), now + hours(1)};
    const auto authority = detail::make_authority(validity).value();
    const auto member = detail::make_certificate(
                            authority, {.name = "robot-7", .dns = {}, .addresses = {}}, validity)
                            .value();
    const auto files = detail::save_certificate(scratch_.path() / "member", "robot-7", member,
                                                authority.certificate.get())
                           .value();
    return {.key = {},
            .cert = files.certificate.string(),
            .cert_key = files.key.string(),
            .ca = files.authority.string()};
  }

  const ScratchDir scratch_;
  std::optional<Context> here_;
  std::optional<Context> there_;
  std::optional<Listener> listener_;
  std::optional<Pipe> out_;
  std::optional<Pipe> in_;
};

TEST_F(SecurePipe, OverTcp) {
  open("127.0.0.1:0", key("fleet.key"), Transport::tcp);
  EXPECT_THAT(out_->path().to_string(), StartsWith("tcp"));
  expect_proved("key:fleet", IdentityProof::key);
  expect_moved(1);
  expect_moved(1 << 20);  // over the lanes
  std::swap(out_, in_);
  expect_moved(1 << 20);
}

TEST_F(SecurePipe, OverAUnixSocket) {
  open("unix:" + file("socket"), key("fleet.key"), Transport::tcp);
  expect_proved("key:fleet", IdentityProof::key);
  expect_moved(1);
  expect_moved(1 << 20);
}

TEST_F(SecurePipe, OnOneHostItIsSharedMemory) {
  open("127.0.0.1:0", key("fleet.key"), Transport::automatic);
  EXPECT_THAT(out_->path().to_string(), StartsWith("shm"));
  expect_proved("key:fleet", IdentityProof::key);
  expect_moved(1 << 20);
}

TEST_F(SecurePipe, ByCertificates) {
  const CredentialFiles credentials = member_files();
  open("127.0.0.1:0", Security::load(credentials, "robot-7").value(), Transport::tcp);
  expect_proved("tendon:robot-7", IdentityProof::certificate);
  expect_moved(1 << 20);
  // The dialled address is not a name of the certificate.
  const auto refused = Pipe::connect(*here_, listener_->address(), kPatience,
                                     {.security = Security::load(credentials).value()});
  EXPECT_TRUE(fails_with(refused, ErrorCode::authentication_failed, "'127.0.0.1' is expected"));
}

TEST_F(SecurePipe, AListenerThatNamesItsPeerTakesNoKeyAndNoOtherName) {
  (void)key("fleet.key");
  CredentialFiles both = member_files();
  both.key = file("fleet.key");
  open("127.0.0.1:0", Security::load(both, "robot-7").value(), Transport::tcp);
  EXPECT_TRUE(fails_with(
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = key("fleet.key")}),
      ErrorCode::authentication_failed));
  const auto listener =
      Listener::bind(*there_, "127.0.0.1:0", {.security = Security::load(both, "another").value()})
          .value();
  EXPECT_TRUE(fails_with(Pipe::connect(*here_, listener.address(), kPatience,
                                       {.security = Security::load(both, "robot-7").value()}),
                         ErrorCode::authentication_failed));
}

TEST_F(SecurePipe, WhoWantsANameIsAnsweredByACertificate) {
  (void)key("fleet.key");
  CredentialFiles both = member_files();
  both.key = file("fleet.key");
  open("127.0.0.1:0", Security::load(both).value(), Transport::tcp);
  expect_proved("key:fleet", IdentityProof::key);
  out_.reset();
  in_.reset();
  open("127.0.0.1:0", Security::load(both, "robot-7").value(), Transport::tcp);
  expect_proved("tendon:robot-7", IdentityProof::certificate);
  expect_moved(1 << 20);  // over the lanes
  EXPECT_TRUE(fails_with(Pipe::connect(*here_, listener_->address(), kPatience,
                                       {.security = Security::load(both, "nobody").value()}),
                         ErrorCode::authentication_failed, "'nobody' is expected"));
  EXPECT_TRUE(fails_with(Security::load({.key = both.key}, "nobody"), ErrorCode::invalid_argument,
                         "peer is a name in a certificate"));
  EXPECT_TRUE(fails_with(Pipe::connect(*here_, listener_->address(), kPatience,
                                       {.security = {Profile::plaintext, nullptr, "nobody"}}),
                         ErrorCode::invalid_argument, "peer is a name in a certificate"));
}

TEST_F(SecurePipe, AWrongKeyIsRefused) {
  open("127.0.0.1:0", key("fleet.key"), Transport::tcp);
  EXPECT_TRUE(fails_with(
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = key("other.key")}),
      ErrorCode::authentication_failed, "refused the credentials"));
  expect_moved(10);
}

TEST_F(SecurePipe, NeitherEndSpeaksPlaintextWithTheOther) {
  open("127.0.0.1:0", key("fleet.key"), Transport::tcp);
  EXPECT_TRUE(fails_with(
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = {Profile::plaintext}}),
      ErrorCode::protocol_violation, "secure listener"));
  const auto plain =
      Listener::bind(*there_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  EXPECT_TRUE(
      fails_with(Pipe::connect(*here_, plain.address(), kPatience, {.security = key("fleet.key")}),
                 ErrorCode::protocol_violation, "TLS"));
}

TEST_F(SecurePipe, ALinkWithoutProofServesNoSecureListener) {
  open("127.0.0.1:0", key("fleet.key"), Transport::tcp);
  const auto local = Listener::bind(*there_, "127.0.0.1:0", {}).value();
  auto pipe = Pipe::connect(*here_, local.address(), kPatience, {});
  ASSERT_TRUE(succeeds(pipe));
  auto again =
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = key("fleet.key")});
  ASSERT_TRUE(succeeds(again));
}

TEST_F(SecurePipe, WithoutKeysTheProofIsThatOfTheHost) {
  for (const Profile profile : {Profile::local, Profile::plaintext}) {
    for (const Transport transport : {Transport::tcp, Transport::automatic}) {
      open("127.0.0.1:0", {profile}, transport);
      expect_proved("", IdentityProof::local);
      out_.reset();
      in_.reset();
    }
  }
}

TEST_F(SecurePipe, AKeyLogHasTheSecretsOfBothEndsAndIsForItsOwner) {
  (void)key("fleet.key");
  const auto logging = [&](const std::string& name) {
    return Security::load({.key = file("fleet.key"), .keylog = file(name)});
  };
  const auto lines_of = [&](const std::string& name) {
    std::ifstream log(file(name));
    std::vector<std::string> lines;
    for (std::string line; std::getline(log, line);) lines.push_back(line);
    std::ranges::sort(lines);
    return lines;
  };
  const LogLines said;
  open("127.0.0.1:0", logging("log").value(), Transport::tcp);
  EXPECT_TRUE(said.have("reads all"));
  EXPECT_EQ(std::filesystem::status(file("log")).permissions(), std::filesystem::perms(0600));
  std::vector<std::string> lines = lines_of("log");
  // Both ends write the same lines.
  EXPECT_GE(
      std::ranges::count_if(
          lines, [](const auto& line) { return line.starts_with("CLIENT_TRAFFIC_SECRET_0 "); }),
      2);
  lines.erase(std::ranges::unique(lines).begin(), lines.end());
  EXPECT_EQ(lines.size() * 2, lines_of("log").size());
  auto again =
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = logging("log").value()});
  EXPECT_TRUE(succeeds(again));
  EXPECT_GT(lines_of("log").size(), lines.size() * 2) << "it is appended to";

  std::filesystem::permissions(file("log"), std::filesystem::perms(0644));
  EXPECT_TRUE(fails_with(logging("log"), ErrorCode::permission_denied, "0644"));
  std::filesystem::permissions(file("log"), std::filesystem::perms(0600));
  std::filesystem::create_symlink(file("log"), file("link"));
  EXPECT_TRUE(fails_with(logging("link"), ErrorCode::permission_denied, "symbolic link"));
  EXPECT_TRUE(fails_with(logging("none/log"), ErrorCode::file_not_found, "none/log"));
}

TEST_F(SecurePipe, NeedsCredentials) {
  const auto context = Context::create({}).value();
  here_ = Context::create({.name = "here"}).value();
  EXPECT_TRUE(fails_with(Listener::bind(*here_, "127.0.0.1:0", {.security = {Profile::secure}}),
                         ErrorCode::invalid_argument, "credentials"));
  EXPECT_TRUE(
      fails_with(Pipe::connect(*here_, "127.0.0.1:1", kPatience, {.security = {Profile::secure}}),
                 ErrorCode::invalid_argument, "credentials"));
  Security both = key("fleet.key");
  both.profile = Profile::plaintext;
  EXPECT_TRUE(fails_with(Listener::bind(*here_, "127.0.0.1:0", {.security = both}),
                         ErrorCode::invalid_argument, "leave one"));
}

TEST_F(SecurePipe, AServerHasItToo) {
  const Security security = key("fleet.key");
  here_ = Context::create({.name = "here", .transport = Transport::tcp}).value();
  there_ = Context::create({.name = "there"}).value();
  auto server = Server::serve(*there_, "127.0.0.1:0",
                              [](Pipe client) {
                                const auto request = client.recv(kPatience);
                                if (request) (void)client.send(*request, kPatience);
                              },
                              {.security = security});
  ASSERT_TRUE(succeeds(server));
  auto pipe = Pipe::connect(*here_, server->address(), kPatience, {.security = security}).value();
  TensorDict request;
  request.set("text", "hello");
  EXPECT_TRUE(succeeds(pipe.send(request, kPatience)));
  EXPECT_TRUE(succeeds(pipe.recv(kPatience)));
}

// The bytes of a key and its text in base64 are only in the memory of keys: not in libssl's memory
// for the handshake, not where a file was read, and on no stack.
TEST_F(SecurePipe, TheKeyIsNowhereElseInTheProcess) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer maps more memory than can be searched";
  (void)key("fleet.key");
  SoughtBytes sought;
  {
    const auto keys = detail::load_keys(file("fleet.key")).value();
    const Bytes secret = keys.front().secret.bytes();
    sought.add(secret);
    detail::SecretBytes text(45);
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.writable().data()),
                    reinterpret_cast<const unsigned char*>(secret.data()), 32);
    sought.add(text.bytes().first(44));
  }
  EXPECT_THAT(sought.places_outside(), IsEmpty()) << "a file was written and read";
  const Security security = key("fleet.key");
  EXPECT_THAT(sought.places_outside(), IsEmpty()) << "a file was read";
  EXPECT_EQ(sought.count_inside(), 4U) << "the key, and not its text";

  open("127.0.0.1:0", security, Transport::tcp);
  EXPECT_THAT(sought.places_outside(), IsEmpty()) << "a link is open";
  expect_moved(1);
  expect_moved(1 << 20);
  EXPECT_TRUE(fails_with(
      Pipe::connect(*here_, listener_->address(), kPatience, {.security = key("other.key")}),
      ErrorCode::authentication_failed));
  EXPECT_THAT(sought.places_outside(), IsEmpty()) << "lanes are open, and a peer was refused";
  EXPECT_EQ(sought.count_inside(), 4U);
}

// The program may keep ended pipes as long as it likes.
TEST_F(SecurePipe, TheKeysOfALinkAreWipedWhenItEnds) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer maps more memory than can be searched";
  (void)key("fleet.key");
  open("127.0.0.1:0", Security::load({.key = file("fleet.key"), .keylog = file("log")}).value(),
       Transport::tcp);
  expect_moved(1 << 20);
  SoughtBytes sought;
  std::ifstream log(file("log"));
  for (std::string line; std::getline(log, line);) {
    if (line.find("_TRAFFIC_SECRET_0 ") == std::string::npos) continue;
    std::vector<std::byte> secret(48);
    ASSERT_TRUE(detail::from_hex(std::string_view(line).substr(line.rfind(' ') + 1), secret));
    sought.add(secret);
  }
  EXPECT_NE(sought.count_inside(), 0u);
  (void)here_->close(kPatience);
  (void)there_->close(kPatience);
  EXPECT_TRUE(eventually([&] { return sought.count_inside() == 0; }));
}

// --- changes of the key

class RotatedKey : public SecurePipe {
 protected:
  /// The keys of these labels are in the file of both ends from now on, in this order.
  void write_keys(const std::vector<std::string>& labels) {
    const std::string made = file("made.key");
    {
      std::ofstream keys(made);
      for (const std::string& label : labels) {
        if (!std::filesystem::exists(file(label)))
          (void)detail::make_key_file(file(label), label).value();
        keys << std::ifstream(file(label)).rdbuf();
      }
    }
    std::filesystem::permissions(made, std::filesystem::perms(0600));
    std::filesystem::rename(made, file("fleet.key"));
  }
  /// Looks into the file before each connection.
  [[nodiscard]] Security fleet() const {
    detail::secure::RotationLimits limits;
    limits.looks_every = std::chrono::nanoseconds(0);
    return {Profile::secure,
            detail::secure::Credentials::load({.key = file("fleet.key")}, limits).value(),
            {}};
  }
  void open_by_the_first(Transport transport) {
    write_keys({"old"});
    security_ = fleet();
    open("127.0.0.1:0", security_, transport);
    expect_proved("key:old", IdentityProof::key);
  }
  [[nodiscard]] Result<Pipe> connect(Context& from) {
    return Pipe::connect(from, listener_->address(), kPatience, {.security = security_});
  }
  /// A further pipe of `here_` is on its living link.
  void expect_on_the_link_of_the_old_one() {
    out_.reset();
    auto pipe = connect(*here_);
    ASSERT_TRUE(succeeds(pipe));
    out_ = *std::move(pipe);
    in_ = listener_->accept(kPatience).value();
    expect_proved("key:old", IdentityProof::key);
    EXPECT_EQ(here_->members().size(), 1u);
    expect_moved(1 << 16);
  }

  Security security_;
};

TEST_F(RotatedKey, OpensFurtherPipesOnTheLinkOfTheOldOne) {
  for (const Transport transport : {Transport::tcp, Transport::automatic}) {
    open_by_the_first(transport);
    for (const auto& labels :
         std::vector<std::vector<std::string>>{{"old", "new"}, {"new", "old"}, {"new", "old"}}) {
      write_keys(labels);
      expect_on_the_link_of_the_old_one();
    }
    Context another = Context::create({.name = "another"}).value();
    const auto pipe = connect(another);
    ASSERT_TRUE(succeeds(pipe));
    EXPECT_EQ(pipe->peer().identity, "key:new") << "it has no link by the old one";
    out_.reset();
    in_.reset();
  }
}

// The link was made at the address of one listener, and serves those at others too.
TEST_F(RotatedKey, OpensFurtherPipesAtEachAddressThatWasDialled) {
  open_by_the_first(Transport::tcp);
  const std::string first = listener_->address();
  listener_ = Listener::bind(*there_, "127.0.0.1:0", {.security = security_}).value();
  ASSERT_NE(listener_->address(), first);
  expect_on_the_link_of_the_old_one();
  write_keys({"new", "old"});
  expect_on_the_link_of_the_old_one();
}

TEST_F(RotatedKey, IsRefusedBesideALinkByOneThatWasRemoved) {
  open_by_the_first(Transport::tcp);
  write_keys({"new"});
  const auto refused = connect(*here_);
  EXPECT_TRUE(fails_with(refused, ErrorCode::protocol_violation,
                         "has proved to be 'key:new', and its living link 'key:old'"));
  EXPECT_TRUE(
      fails_with(refused, ErrorCode::protocol_violation, "or connect from another Context"));
  EXPECT_EQ(refused.error().remedy(), Remedy::fix_the_call);
  expect_moved(1);
  Context another = Context::create({.name = "another"}).value();
  EXPECT_TRUE(succeeds(connect(another)));
}

// A key of the same label with other bytes is another one.
TEST_F(RotatedKey, IsNotProvedByItsLabelAlone) {
  open_by_the_first(Transport::tcp);
  std::filesystem::remove(file("old"));
  write_keys({"new", "old"});
  EXPECT_TRUE(fails_with(connect(*here_), ErrorCode::protocol_violation,
                         "has proved to be 'key:new', and its living link 'key:old'"));
}

// --- renewal of the session

/// The number of renewals of the sessions of a Context's links.
std::uint64_t renewals_of(const Context& context) {
  const std::string text = context.describe();
  const std::string_view mark = "session renewed ";
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + mark.size()));
}

class RenewedPipe : public SecurePipe {
 protected:
  /// Keys change every few messages, or all the time where no bytes are counted.
  [[nodiscard]] static detail::secure::RotationLimits often() {
    detail::secure::RotationLimits limits;
    limits.records.records = 5;
    limits.records.updates = 1'000'000;
    limits.renewal.bytes = 4096;
    limits.renewal.age = std::chrono::milliseconds(50);
    limits.renewal.starts = 1'000'000;
    limits.looks_every = std::chrono::nanoseconds(0);
    return limits;
  }
  [[nodiscard]] static Security load(const CredentialFiles& files, std::string peer = {}) {
    return {Profile::secure, detail::secure::Credentials::load(files, often()).value(),
            std::move(peer)};
  }
  [[nodiscard]] Security key_that_rotates() {
    (void)key("fleet.key");
    return load({.key = file("fleet.key")});
  }
  /// False: the stream ended, or it is not the expected batch.
  [[nodiscard]] static bool is_batch(const Result<TensorDict>& batch, std::int64_t expected) {
    if (!batch) {
      EXPECT_EQ(batch.error().code, ErrorCode::end_of_stream) << batch.error().message();
      return false;
    }
    std::int64_t n = -1;
    std::memcpy(&n, (*batch)["n"].bytes().data(), sizeof n);
    const Bytes bytes = (*batch)["x"].bytes();
    std::int64_t last = -1;
    std::memcpy(&last, bytes.data() + bytes.size() - sizeof last, sizeof last);
    EXPECT_EQ(n, expected);
    EXPECT_EQ(last, expected);
    EXPECT_EQ(bytes.size(), (n % 3 == 0 ? 20'000 : 100) * sizeof n);
    return n == expected && last == expected;
  }
  void expect_carried_while_renewing(const std::string& address, Transport transport,
                                     std::uint64_t renewals) {
    open(address, key_that_rotates(), transport);
    // Sends alternately with the descriptor and over the lanes.
    std::int64_t sent = 0;
    std::thread sender([&] {
      for (; sent < 200 || renewals_of(*here_) < renewals; ++sent) {
        TensorDict batch;
        batch.set("n", Tensor::of<std::int64_t>({1}, std::span<const std::int64_t>(&sent, 1)));
        const std::vector<std::int64_t> values(sent % 3 == 0 ? 20'000 : 100, sent);
        batch.set("x", Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())},
                                                std::span<const std::int64_t>(values)));
        const auto done = out_->send(batch, kPatience);
        ASSERT_TRUE(succeeds(done));
      }
      EXPECT_TRUE(succeeds(out_->close(kPatience)));
    });
    std::int64_t received = 0;
    for (auto batch = in_->recv(kPatience); is_batch(batch, received); ++received)
      batch = in_->recv(kPatience);
    sender.join();
    EXPECT_EQ(received, sent);
    EXPECT_GE(renewals_of(*here_), renewals);
    EXPECT_GE(renewals_of(*there_) + 1, renewals);
  }
};

TEST_F(RenewedPipe, OverTcpLosesAndDoublesNothing) {
  expect_carried_while_renewing("127.0.0.1:0", Transport::tcp, 30);
}

TEST_F(RenewedPipe, OverAUnixSocketLosesAndDoublesNothing) {
  expect_carried_while_renewing("unix:" + file("socket"), Transport::tcp, 30);
}

TEST_F(RenewedPipe, InSharedMemoryLosesAndDoublesNothing) {
  expect_carried_while_renewing("127.0.0.1:0", Transport::automatic, 2);
}

// The files of both ends receive another certificate while the link lives.
TEST_F(RenewedPipe, TakesTheCertificatesThatItsFilesHaveByThen) {
  using std::chrono::hours;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const detail::Validity validity{now - hours(1), now + hours(1)};
  const auto authority = detail::make_authority(validity).value();
  int made_count = 0;
  const auto make = [&](const std::string& name) {
    const auto member =
        detail::make_certificate(authority, {.name = name, .dns = {}, .addresses = {}}, validity)
            .value();
    return detail::save_certificate(scratch_.path() / ("made-" + std::to_string(++made_count)),
                                    name, member, authority.certificate.get())
        .value();
  };
  const auto first = make("robot-7");
  const auto replace_by = [&](const detail::CertificateFiles& next) {
    std::filesystem::rename(next.key, first.key);
    std::filesystem::rename(next.certificate, first.certificate);
  };
  open("127.0.0.1:0",
       load({.cert = first.certificate.string(),
             .cert_key = first.key.string(),
             .ca = first.authority.string()},
            "robot-7"),
       Transport::tcp);
  const auto renewed = [&] {
    const std::uint64_t before = renewals_of(*here_);
    return eventually([&] { return renewals_of(*here_) > before + 1; });
  };
  EXPECT_TRUE(renewed());
  replace_by(make("robot-7"));
  EXPECT_TRUE(renewed());
  expect_moved(1 << 16);

  replace_by(make("another"));
  // The client sees the server's certificate first.
  EXPECT_TRUE(fails_with(out_->recv(kPatience), ErrorCode::authentication_failed,
                         "'tendon:another' (certificate), and was 'tendon:robot-7'"));
  EXPECT_TRUE(fails_with(in_->recv(kPatience), ErrorCode::authentication_failed, "refused"));
}

// Prints how late messages are while both the session and the keys of records change each second,
// beside links that keep theirs. A message is late beyond twice the p99 of its own run.
TEST_F(RenewedPipe, EachSecondForLonger) {
  if (std::getenv("TENDON_TEST_LONG") == nullptr) GTEST_SKIP() << "TENDON_TEST_LONG is not set";
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kMessages = 10'000;
  constexpr std::chrono::microseconds kPace{500};
  constexpr std::size_t kValues = 2'048;  // 16 KiB
  detail::secure::RotationLimits each_second;
  each_second.records.age = std::chrono::seconds(1);
  each_second.records.updates = 1'000'000;
  each_second.renewal.age = std::chrono::seconds(1);
  each_second.renewal.starts = 1'000'000;
  (void)key("fleet.key");
  for (int round = 0; round < 5; ++round) {
    for (const bool rotates : {false, true}) {
      const auto credentials = detail::secure::Credentials::load(
          {.key = file("fleet.key")}, rotates ? each_second : detail::secure::RotationLimits{});
      open("127.0.0.1:0", {Profile::secure, credentials.value(), {}}, Transport::tcp);
      std::mutex mutex;
      std::condition_variable failed;
      std::thread sender([&] {
        const auto begun = Clock::now();
        std::vector<std::int64_t> values(kValues);
        for (std::int64_t n = 0; n < kMessages; ++n) {
          {
            std::unique_lock lock(mutex);
            failed.wait_until(lock, begun + n * kPace, [&] { return HasFailure(); });
          }
          values[0] = n;
          values[1] = Clock::now().time_since_epoch().count();
          TensorDict batch;
          batch.set("x", Tensor::of<std::int64_t>({static_cast<std::int64_t>(kValues)},
                                                  std::span<const std::int64_t>(values)));
          const auto done = out_->send(batch, kPatience);
          ASSERT_TRUE(succeeds(done));
        }
        EXPECT_TRUE(succeeds(out_->close(kPatience)));
      });
      std::vector<double> microseconds;
      std::array<std::int64_t, 2> said{};
      for (auto batch = in_->recv(kPatience); batch; batch = in_->recv(kPatience)) {
        const auto now = Clock::now().time_since_epoch();
        std::memcpy(said.data(), (*batch)["x"].bytes().data(), sizeof said);
        ASSERT_EQ(said[0], static_cast<std::int64_t>(microseconds.size())) << "lost or doubled";
        microseconds.push_back(
            std::chrono::duration<double, std::micro>(now - Clock::duration(said[1])).count());
      }
      sender.join();
      ASSERT_EQ(microseconds.size(), static_cast<std::size_t>(kMessages));
      std::ranges::sort(microseconds);
      const double p99 = microseconds[kMessages * 99 / 100];
      const auto late = std::ranges::count_if(microseconds, [&](double m) { return m > 2 * p99; });
      std::printf(
          "%-16s %2llu renewals: p50 %.0f us, p99 %.0f us, last %.0f us; %lld later than twice "
          "p99\n",
          rotates ? "each second" : "never", static_cast<unsigned long long>(renewals_of(*here_)),
          microseconds[kMessages / 2], p99, microseconds.back(), static_cast<long long>(late));
    }
  }
}

}  // namespace
}  // namespace tendon::test
