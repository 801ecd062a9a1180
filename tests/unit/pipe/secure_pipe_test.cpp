// SPDX-License-Identifier: Apache-2.0
// Pipes, listeners and servers with Profile::secure, on each path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <tendon/tendon.hpp>
#include <thread>

#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
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
  /// What both ends know of each other.
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
  using std::chrono::hours;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const detail::Validity validity{now - hours(1), now + hours(1)};
  const auto authority = detail::make_authority(validity).value();
  const auto member =
      detail::make_certificate(authority, {.name = "robot-7", .dns = {}, .addresses = {}}, validity)
          .value();
  const auto files = detail::save_certificate(scratch_.path() / "member", "robot-7", member,
                                              authority.certificate.get())
                         .value();
  const CredentialFiles credentials{.key = {},
                                    .cert = files.certificate.string(),
                                    .cert_key = files.key.string(),
                                    .ca = files.authority.string()};
  open("127.0.0.1:0", Security::load(credentials, "robot-7").value(), Transport::tcp);
  expect_proved("tendon:robot-7", IdentityProof::certificate);
  expect_moved(1 << 20);
  // The dialled address is not a name of the certificate.
  const auto refused = Pipe::connect(*here_, listener_->address(), kPatience,
                                     {.security = Security::load(credentials).value()});
  EXPECT_TRUE(fails_with(refused, ErrorCode::authentication_failed, "'127.0.0.1' is expected"));
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
  // Both ends write the same.
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

// Bytes of a key and its text in base64 are in the memory of keys alone: not in what libssl had for
// the handshake, not where a file was read, and on no stack.
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

}  // namespace
}  // namespace tendon::test
