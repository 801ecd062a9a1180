// SPDX-License-Identifier: Apache-2.0
// Files of credentials that do not belong together, and when a key log is made for them.
#include "secure/credentials.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/key_file.hpp"
#include "secure/utc_text.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;

class LoadedCredentials : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(succeeds(make_key_file(path("fleet.key"), "fleet")));
    make_member("a");
    make_member("b");
  }
  /// In a folder of its own: NAME/NAME.crt, NAME/NAME.key and NAME/ca.crt.
  void make_member(const std::string& name) const {
    const auto now = utc_now();
    const Validity validity{now - std::chrono::minutes(1), now + std::chrono::days(1)};
    const Credential ca = make_authority(validity).value();
    const Credential member = make_certificate(ca, {name, {}, {}}, validity).value();
    ASSERT_TRUE(succeeds(save_certificate(path(name), name, member, ca.certificate.get())));
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  [[nodiscard]] CredentialFiles member(const std::string& name) const {
    return {.cert = path(name + "/" + name + ".crt"),
            .cert_key = path(name + "/" + name + ".key"),
            .ca = path(name + "/ca.crt")};
  }
  static testing::AssertionResult refused(const CredentialFiles& files, ErrorCode code,
                                          const std::string& why) {
    return fails_with(Credentials::load(files), code, why);
  }

  const ScratchDir folder_;
};

TEST_F(LoadedCredentials, WhatIsMissingIsNamedWithItsFlagAndVariable) {
  constexpr auto kCode = ErrorCode::invalid_argument;
  const CredentialFiles all = member("a");
  EXPECT_TRUE(succeeds(Credentials::load(all)));
  EXPECT_TRUE(refused({}, kCode, "--key, TENDON_KEY"));
  EXPECT_TRUE(refused({.cert = all.cert}, kCode,
                      "cert '" + all.cert +
                          "' is given without cert_key (--cert-key, TENDON_CERT_KEY) and "
                          "ca (--ca, TENDON_CA)"));
  EXPECT_TRUE(refused({.cert = all.cert, .cert_key = all.cert_key}, kCode,
                      "cert_key '" + all.cert_key + "' are given without ca (--ca, TENDON_CA)"));
  EXPECT_TRUE(refused(
      {.cert_key = all.cert_key}, kCode,
      "cert_key '" + all.cert_key + "' is given without cert (--cert, TENDON_CERT) and ca"));
  EXPECT_TRUE(
      refused({.key = path("fleet.key"), .ca = all.ca}, kCode,
              "ca '" + all.ca + "' is given without cert (--cert, TENDON_CERT) and cert_key"));
}

TEST_F(LoadedCredentials, AKeyOfAnotherCertificateIsNamedWithBothFiles) {
  CredentialFiles files = member("a");
  files.cert_key = member("b").cert_key;
  for (const std::string& file : {files.cert, files.cert_key})
    EXPECT_TRUE(refused(files, ErrorCode::invalid_argument, "'" + file + "'"));
}

TEST_F(LoadedCredentials, AFileOfAnotherKindIsNotToldToChangeItsMode) {
  std::ofstream(path("m.safetensors")) << "weights";
  ASSERT_EQ(chmod(path("m.safetensors").c_str(), 0664), 0);
  const CredentialFiles a = member("a");
  constexpr auto kCode = ErrorCode::corrupt_data;
  EXPECT_TRUE(refused({.key = a.cert}, kCode, "as certificates and their keys do (--cert"));
  EXPECT_TRUE(refused({.key = path("m.safetensors")}, kCode, "does not begin with"));
  EXPECT_TRUE(fails_with(add_key(path("m.safetensors"), "a"), kCode, "does not begin with"));
  for (const std::string& other : {a.cert, path("m.safetensors")}) {
    CredentialFiles files = a;
    files.cert_key = other;
    EXPECT_TRUE(refused(files, kCode, "no private key")) << other;
  }
  CredentialFiles files = a;
  files.cert = path("m.safetensors");
  EXPECT_TRUE(refused(files, kCode, "no certificate"));
  // One of its kind is told so.
  ASSERT_EQ(chmod(a.cert_key.c_str(), 0640), 0);
  ASSERT_EQ(chmod(a.ca.c_str(), 0664), 0);
  EXPECT_TRUE(refused(a, ErrorCode::permission_denied, "chmod 600 '" + a.cert_key + "'"));
  ASSERT_EQ(chmod(a.cert_key.c_str(), 0600), 0);
  EXPECT_TRUE(refused(a, ErrorCode::permission_denied, "chmod go-w '" + a.ca + "'"));
}

TEST_F(LoadedCredentials, AreCheckedBeforeAKeyLogIsMade) {
  CredentialFiles files = member("a");
  files.keylog = path("log");
  files.cert_key = member("b").cert_key;
  EXPECT_FALSE(Credentials::load(files));
  EXPECT_FALSE(Credentials::load({.keylog = files.keylog}));
  EXPECT_FALSE(std::filesystem::exists(files.keylog));
  files.cert_key = member("a").cert_key;
  const auto made = Credentials::load(files);
  ASSERT_TRUE(succeeds(made));
  EXPECT_NE((*made)->key_log(), nullptr);
  EXPECT_TRUE(std::filesystem::exists(files.keylog));
}

TEST_F(LoadedCredentials, AKeyLogThatCannotBeIsNamed) {
  CredentialFiles files{.key = path("fleet.key"), .keylog = folder_.path().string()};
  EXPECT_TRUE(refused(files, ErrorCode::invalid_argument, "is a folder"));
  files.keylog = path("fifo");
  ASSERT_EQ(mkfifo(files.keylog.c_str(), 0600), 0);
  EXPECT_TRUE(refused(files, ErrorCode::invalid_argument, "no regular file"));
  files.keylog = path("log");
  std::ofstream(files.keylog) << "";
  ASSERT_EQ(chmod(files.keylog.c_str(), 0644), 0);
  const auto open = Credentials::load(files);
  EXPECT_TRUE(fails_with(open, ErrorCode::permission_denied, "chmod 600 '" + files.keylog + "'"));
  EXPECT_EQ(open.error().detail.find("make a new key"), std::string::npos) << open.error().detail;
}

}  // namespace
}  // namespace tendon::test
