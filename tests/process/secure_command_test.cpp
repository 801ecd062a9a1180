// SPDX-License-Identifier: Apache-2.0
// The identity of the other end of `tendon send` and `recv`, the source of their keys, and the
// listener that `tendon key check` asks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process/command.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/variable.hpp"

namespace tendon::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

Words operator+(Words first, const Words& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

class SecureCommand : public testing::Test {
 protected:
  void SetUp() override {
    for (const Words& words :
         {Words{"key", "new", path("fleet.key")},
          Words{"key", "new", path("other.key"), "--label", "fleet"},
          Words{"make-checkpoint", path("a.safetensors"), "--size-mb", "0.01"}})
      ASSERT_EQ(run_tendon(words).code, 0);
    std::filesystem::create_directory(path("in"));
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Starts `tendon recv` with these words, at `address_`.
  [[nodiscard]] std::unique_ptr<Command> start_recv(const Words& words) {
    auto receiver = std::make_unique<Command>(
        Words{"recv", "127.0.0.1:0", "--force", "--output", path("in")} + words);
    address_ = receiver->wait_for_err("tendon: listening on ");
    return receiver;
  }
  [[nodiscard]] Ended send(const Words& words) const {
    return run_tendon(Words{"send", path("a.safetensors"), address_} + words);
  }
  [[nodiscard]] Ended check(const Words& words) const {
    return run_tendon(Words{"key", "check"} + words);
  }
  static testing::AssertionResult failed(const Ended& ended, ErrorCode code,
                                         const std::string& text) {
    if (ended.code == error_info(code).exit_code &&
        (ended.out + ended.err).find(text) != std::string::npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "wanted " << to_string(code) << " with '" << text
                                       << "', got " << testing::PrintToString(ended);
  }

  ScratchDir folder_;
  std::string address_;
};

TEST_F(SecureCommand, BothEndsNameWhomTheOtherProvedToBe) {
  const Words key{"--key", path("fleet.key")};
  for (const Words& how : {Words{}, Words{"--path", "tcp"}}) {
    auto receiver = start_recv(key + how + Words{"--json"});
    const Ended sent = send(key + Words{"--json"});
    const Ended received = receiver->finish();
    for (const Ended& end : {sent, received}) {
      ASSERT_EQ(end.code, 0) << testing::PrintToString(end);
      const Json said = Json::parse(end.out);
      EXPECT_EQ(said.at("peer_identity"), "key:fleet");
      EXPECT_EQ(said.at("peer_proof"), "key");
      EXPECT_THAT(said.at("peer").get<std::string>(), HasSubstr("key:fleet"));
    }
  }
  auto receiver = start_recv({});
  EXPECT_THAT(send({}).out, HasSubstr("proof local"));
  EXPECT_THAT(receiver->finish().out, HasSubstr("verified  from tendon send (host"));
}

// The refused peer gets no reason.
TEST_F(SecureCommand, RecvSaysWhomItRefusedAndWhy) {
  auto receiver = start_recv({"--key", path("fleet.key")});
  EXPECT_TRUE(failed(send({"--key", path("other.key")}), ErrorCode::authentication_failed,
                     "its log has the reason"));
  EXPECT_THAT(receiver->wait_for_err("tendon: refused "), HasSubstr("127.0.0.1"));
  EXPECT_EQ(send({"--key", path("fleet.key")}).code, 0);
  EXPECT_EQ(receiver->finish().code, 0);
}

TEST_F(SecureCommand, KeysComeByADescriptor) {
  const std::string tendon = std::string("exec '") + TENDON_CLI_PATH + "' ";
  Command receiver({"-c", tendon + "recv 127.0.0.1:0 -o '" + path("in") + "' --key-fd 3 3< '" +
                              path("fleet.key") + "'"},
                   "/bin/sh");
  address_ = receiver.wait_for_err("tendon: listening on ");
  Command sender({"-c", "cat '" + path("fleet.key") + "' | '" + TENDON_CLI_PATH + "' send '" +
                            path("a.safetensors") + "' " + address_ + " --key-fd 0"},
                 "/bin/sh");
  const Ended sent = sender.finish();
  EXPECT_EQ(sent.code, 0) << testing::PrintToString(sent);
  EXPECT_THAT(sent.out, HasSubstr("key:fleet"));
  EXPECT_EQ(receiver.finish().code, 0);
}

TEST_F(SecureCommand, AKeyMayBeThatOfTheEnvironment) {
  const Variable key("TENDON_KEY", path("fleet.key").c_str());
  auto receiver = start_recv({"--json"});
  EXPECT_TRUE(failed(send({"--key", path("other.key")}), ErrorCode::authentication_failed, ""))
      << "a flag is before a variable";
  EXPECT_EQ(Json::parse(send({"--json"}).out).at("peer_identity"), "key:fleet");
  EXPECT_EQ(Json::parse(receiver->finish().out).at("peer_identity"), "key:fleet");
  receiver = start_recv({"--insecure-plaintext"});
  EXPECT_THAT(send({"--insecure-plaintext"}).out, Not(HasSubstr("key:fleet")));
  EXPECT_EQ(receiver->finish().code, 0);
}

TEST_F(SecureCommand, CertificatesMayBeThoseOfTheEnvironment) {
  ASSERT_EQ(run_tendon({"key", "ca", path("ca")}).code, 0);
  ASSERT_EQ(run_tendon({"key", "cert", "--ca", path("ca"), "--name", "worker-3", path("out")}).code,
            0);
  const Variable cert("TENDON_CERT", path("out/worker-3.crt").c_str());
  const Variable cert_key("TENDON_CERT_KEY", path("out/worker-3.key").c_str());
  const Variable ca("TENDON_CA", path("out/ca.crt").c_str());
  const Variable no_key("TENDON_KEY", "");
  auto receiver = start_recv({"--json"});
  const Ended sent = send({"--json", "--peer", "worker-3"});
  ASSERT_EQ(sent.code, 0) << testing::PrintToString(sent);
  EXPECT_EQ(Json::parse(sent.out).at("peer_identity"), "tendon:worker-3");
  EXPECT_EQ(Json::parse(receiver->finish().out).at("peer_identity"), "tendon:worker-3");
}

// A link without them would be made for a variable of the shell that is not set.
TEST_F(SecureCommand, AnEmptyFileOrNameIsNoneLeftOut) {
  address_ = "127.0.0.1:1";
  for (const std::string flag :
       {"--key", "--cert", "--cert-key", "--ca", "--tls-keylog", "--peer"}) {
    EXPECT_TRUE(
        failed(send({flag, ""}), ErrorCode::invalid_argument, flag + ": the value is empty"));
    EXPECT_TRUE(failed(send({"--insecure-plaintext", flag, ""}), ErrorCode::invalid_argument,
                       flag + ": the value is empty"));
  }
  EXPECT_TRUE(failed(run_tendon({"recv", "127.0.0.1:0", "--key", "", "--timeout", "0"}),
                     ErrorCode::invalid_argument, "--key: the value is empty"));
  EXPECT_TRUE(failed(run_tendon({"bench", "pipe", "--peer", ""}), ErrorCode::invalid_argument,
                     "--peer: the value is empty"));
  EXPECT_TRUE(failed(check({path("fleet.key"), "--peer", ""}), ErrorCode::invalid_argument,
                     "--peer: the value is empty"));
  EXPECT_TRUE(failed(check({path("fleet.key"), "--peer", address_, "--peer-name", ""}),
                     ErrorCode::invalid_argument, "--peer-name: the value is empty"));
}

TEST_F(SecureCommand, ADescriptorThatHasNoKeysIsNamed) {
  address_ = "127.0.0.1:1";
  EXPECT_TRUE(failed(send({"--key-fd", "77"}), ErrorCode::invalid_argument,
                     "descriptor 77 was not inherited"));
  for (const std::string output : {"1", "2"})
    EXPECT_TRUE(failed(send({"--key-fd", output}), ErrorCode::invalid_argument,
                       "descriptor " + output + " is where this program writes"));
  EXPECT_TRUE(failed(send({"--key-fd", "77", "--key", path("fleet.key")}),
                     ErrorCode::invalid_argument, "--key"));
  EXPECT_TRUE(failed(send({"--key-fd", "77", "--insecure-plaintext"}), ErrorCode::invalid_argument,
                     "leave one of the two out"));
  EXPECT_THAT(run_tendon({"bench", "pipe", "--key-fd", "0"}).err, HasSubstr("--key-fd"))
      << "two processes cannot both read it";
  Command empty({"-c", std::string("'") + TENDON_CLI_PATH + "' send '" + path("a.safetensors") +
                           "' 127.0.0.1:1 --key-fd 0 < /dev/null"},
                "/bin/sh");
  EXPECT_TRUE(failed(empty.finish(), ErrorCode::corrupt_data, "'descriptor 0' has no key"));
}

TEST_F(SecureCommand, AKeyLogIsForItsOwnerAndNobodyGetsOneUnawares) {
  const Words key{"--key", path("fleet.key")};
  auto receiver = start_recv(key + Words{"--path", "tcp"});
  const Ended sent = send(key + Words{"--tls-keylog", path("log")});
  EXPECT_EQ(sent.code, 0) << testing::PrintToString(sent);
  EXPECT_THAT(sent.err, HasSubstr("reads everything"));
  EXPECT_EQ(receiver->finish().code, 0);
  EXPECT_THAT(text_of("log"), HasSubstr("CLIENT_TRAFFIC_SECRET_0 "));
  EXPECT_EQ(std::filesystem::status(path("log")).permissions(), std::filesystem::perms(0600));
  const Ended alone = send({"--tls-keylog", path("log2")});
  EXPECT_TRUE(failed(alone, ErrorCode::invalid_argument, "a key"));
  EXPECT_THAT(alone.err, Not(HasSubstr("reads everything")));
  EXPECT_FALSE(std::filesystem::exists(path("log2")));
  EXPECT_TRUE(failed(send({"--tls-keylog", path("log"), "--insecure-plaintext"}),
                     ErrorCode::invalid_argument, "leave one"));
}

TEST_F(SecureCommand, ACheckAsksAPeerThatHasTheKey) {
  auto receiver = start_recv({"--key", path("fleet.key")});
  const Ended accepted = check({path("fleet.key"), "--peer", address_});
  EXPECT_EQ(accepted.code, 0) << testing::PrintToString(accepted);
  EXPECT_THAT(accepted.out, HasSubstr("ok     " + address_ +
                                      ": accepts them, and has proved to be key:fleet: "
                                      "tendon recv (key:fleet, host "));
  const Json said =
      Json::parse(check({path("fleet.key"), "--peer", address_, "--json"}).out).at("peer");
  EXPECT_EQ(said.at("accepts"), true);
  EXPECT_EQ(said.at("identity"), "key:fleet");
  EXPECT_EQ(said.at("proof"), "key");

  const Ended refused = check({path("other.key"), "--peer", address_});
  EXPECT_TRUE(failed(refused, ErrorCode::authentication_failed, "refuse " + address_));
  EXPECT_THAT(refused.out, HasSubstr("tendon key id"));
  EXPECT_TRUE(failed(check({path("fleet.key"), path("other.key"), "--peer", address_}),
                     ErrorCode::invalid_argument, "of one kind"));
  const Json fault =
      Json::parse(check({path("other.key"), "--peer", address_, "--json"}).out).at("peer");
  EXPECT_EQ(fault.at("accepts"), false);
  EXPECT_EQ(fault.at("fault").at("name"), "authentication_failed");
  const Ended twice = check({path("fleet.key"), path("fleet.key"), "--peer", address_});
  EXPECT_EQ(twice.code, 0) << testing::PrintToString(twice);
  // The program there has seen nothing of it.
  EXPECT_EQ(send({"--key", path("fleet.key")}).code, 0);
  EXPECT_EQ(receiver->finish().code, 0);
}

TEST_F(SecureCommand, ACheckAsksAPeerByCertificatesAndByItsName) {
  ASSERT_EQ(run_tendon({"key", "ca", path("ca")}).code, 0);
  ASSERT_EQ(run_tendon({"key", "cert", "--ca", path("ca"), "--name", "worker-3", path("out")}).code,
            0);
  const std::string cert = path("out/worker-3.crt");
  const std::string key = path("out/worker-3.key");
  const std::string ca = path("out/ca.crt");
  auto receiver = start_recv({"--cert", cert, "--cert-key", key, "--ca", ca});
  const Words files{cert, key, ca, "--peer", address_};
  const Ended accepted = check(files + Words{"--peer-name", "worker-3"});
  EXPECT_EQ(accepted.code, 0) << testing::PrintToString(accepted);
  EXPECT_THAT(accepted.out, HasSubstr("has proved to be tendon:worker-3"));
  EXPECT_TRUE(failed(check(files), ErrorCode::authentication_failed, "'127.0.0.1' is expected"));
  EXPECT_TRUE(failed(check({path("fleet.key"), "--peer", address_}),
                     ErrorCode::authentication_failed, "refuse " + address_));
}

TEST_F(SecureCommand, APeerIsANameInACertificate) {
  ASSERT_EQ(run_tendon({"key", "ca", path("ca")}).code, 0);
  ASSERT_EQ(run_tendon({"key", "cert", "--ca", path("ca"), "--name", "worker-3", path("out")}).code,
            0);
  const Words key{"--key", path("fleet.key")};
  const Words cert{"--cert", path("out/worker-3.crt"), "--cert-key", path("out/worker-3.key"),
                   "--ca",   path("out/ca.crt")};
  auto receiver = start_recv(key + cert);
  EXPECT_TRUE(failed(send(key + cert + Words{"--peer", "nobody"}), ErrorCode::authentication_failed,
                     "'nobody' is expected"));
  EXPECT_TRUE(failed(send(key + Words{"--peer", "worker-3"}), ErrorCode::invalid_argument,
                     "say --cert, --cert-key and --ca too"));
  EXPECT_TRUE(
      failed(send({"--peer", "worker-3"}), ErrorCode::invalid_argument, "--peer is a name"));
  EXPECT_TRUE(failed(send({"--insecure-plaintext", "--peer", "worker-3"}),
                     ErrorCode::invalid_argument, "--insecure-plaintext uses none"));
  EXPECT_TRUE(failed(check({path("fleet.key"), "--peer", address_, "--peer-name", "worker-3"}),
                     ErrorCode::invalid_argument, "--peer-name is a name"));
  const Ended sent = send(key + cert + Words{"--peer", "worker-3"});
  EXPECT_EQ(sent.code, 0) << testing::PrintToString(sent);
  EXPECT_THAT(sent.out, HasSubstr("proof certificate"));
  EXPECT_EQ(receiver->finish().code, 0);
}

TEST_F(SecureCommand, ACheckSaysWhatElseIsWrongWithAPeer) {
  const Words key{path("fleet.key"), "--peer"};
  EXPECT_TRUE(failed(check(key + Words{"unix:" + path("nobody"), "--timeout", "0.1"}),
                     ErrorCode::unreachable, "refuse unix:"));
  auto receiver = start_recv({"--insecure-plaintext"});
  EXPECT_TRUE(failed(check(key + Words{address_}), ErrorCode::protocol_violation, "TLS"));
  const Ended sent = send({"--key", path("fleet.key")});
  EXPECT_TRUE(failed(sent, ErrorCode::protocol_violation, "do: check the address"));
  EXPECT_THAT(receiver->wait_for_err("tendon: refused "), HasSubstr("this listener has none"));
  std::filesystem::permissions(path("fleet.key"), std::filesystem::perms(0644));
  EXPECT_TRUE(failed(check(key + Words{address_}), ErrorCode::permission_denied, "chmod 600"));
}

TEST_F(SecureCommand, ACheckWaitsForAPeerThatStartsLater) {
  const std::string address = "unix:" + path("socket");
  Command check({"key", "check", path("fleet.key"), "--peer", address, "--timeout", "60"});
  check.wait_for_err("tendon: nobody listens at ");
  Command receiver({"recv", address, "--key", path("fleet.key"), "--output", path("in")});
  const Ended accepted = check.finish();
  EXPECT_EQ(accepted.code, 0) << testing::PrintToString(accepted);
  EXPECT_THAT(accepted.out, HasSubstr("ok     " + address));
}

TEST_F(SecureCommand, NoVerbListensElsewhereUnasked) {
  struct Row {
    Words words;
    bool takes_keys;
  };
  for (const auto& [words, takes_keys] : {
           Row{{"recv", "0.0.0.0:0", "--timeout", "0.05"}, true},
           Row{{"topic", "list", "--listen", "0.0.0.0:0", "--timeout", "0.05"}, false},
           Row{{"node", "list", "--listen", "0.0.0.0:0", "--timeout", "0.05"}, false},
           Row{{"call", "a/b", "--listen", "0.0.0.0:0", "--timeout", "0.05"}, false},
       }) {
    SCOPED_TRACE(words[0]);
    const std::string refusal = "can be reached from other machines";
    EXPECT_TRUE(failed(run_tendon(words), ErrorCode::permission_denied, refusal));
    EXPECT_THAT(run_tendon(words + Words{"--insecure-plaintext"}).err, Not(HasSubstr(refusal)));
    if (!takes_keys) continue;
    EXPECT_THAT(run_tendon(words + Words{"--key", path("fleet.key")}).err, Not(HasSubstr(refusal)));
    EXPECT_TRUE(
        failed(run_tendon(words + Words{"--key", path("fleet.key"), "--insecure-plaintext"}),
               ErrorCode::invalid_argument, "leave one of the two out"));
  }
  const Ended router = run_tendon({"router", "--listen", "0.0.0.0:17447"});
  EXPECT_NE(router.code, 0);
  if (router.code != error_info(ErrorCode::not_supported).exit_code) {
    EXPECT_TRUE(failed(router, ErrorCode::permission_denied, "can be reached from other machines"));
  }
}

}  // namespace
}  // namespace tendon::test
