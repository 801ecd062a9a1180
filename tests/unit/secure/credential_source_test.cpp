// SPDX-License-Identifier: Apache-2.0
// Files of credentials that change after a program has read them.
#include "secure/credential_source.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/credentials.hpp"
#include "secure/key_file.hpp"
#include "secure/utc_text.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using namespace std::chrono_literals;

class ChangedFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return (scratch_.path() / "fleet.key").string(); }
  void make(const std::string& label) {
    std::filesystem::remove(path());
    (void)make_key_file(path(), label).value();
  }
  [[nodiscard]] std::shared_ptr<const Credentials> load(std::chrono::nanoseconds looks_every) {
    RotationLimits limits;
    limits.looks_every = looks_every;
    return Credentials::load({.key = path()}, limits).value();
  }
  [[nodiscard]] static std::string label_of(const std::shared_ptr<const Credentials>& loaded) {
    return Credentials::latest(loaded)->key_to_dial()->label;
  }

  const ScratchDir scratch_;
  const CredentialSource::Clock::time_point now_ = CredentialSource::Clock::now() + 1h;
};

TEST_F(ChangedFiles, AreReadAgain) {
  make("first");
  const auto loaded = load(0ns);
  loaded->look(now_);
  EXPECT_EQ(Credentials::latest(loaded), loaded) << "nothing has changed";
  make("second");
  EXPECT_EQ(label_of(loaded), "first") << "nobody has looked";
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "second");
  EXPECT_EQ(Credentials::latest(loaded)->rotation().looks_every, 0ns);
  const auto latest = Credentials::latest(loaded);
  loaded->look(now_);
  EXPECT_EQ(Credentials::latest(loaded), latest);
}

TEST_F(ChangedFiles, AreNotLookedAtAllTheTime) {
  make("first");
  const auto loaded = load(2h);
  make("second");
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "first");
  loaded->look(now_ + 2h);
  EXPECT_EQ(label_of(loaded), "second");
}

TEST_F(ChangedFiles, ThatCannotBeUsedChangeNothing) {
  make("first");
  const auto loaded = load(0ns);
  std::ofstream(path()) << "no key\n";
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "first");
  std::filesystem::remove(path());
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "first");
  make("second");
  ASSERT_EQ(chmod(path().c_str(), 0644), 0);
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "first") << "others may read it";
  ASSERT_EQ(chmod(path().c_str(), 0600), 0);
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "second");
}

/// The working directory, for the length of a test.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path) {
    std::filesystem::current_path(path);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() { std::filesystem::current_path(before_); }

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(ChangedFiles, AreTheSameOnesInAnotherWorkingDirectory) {
  make("first");
  const auto now = utc_now();
  const Validity validity{now - 1min, now + std::chrono::days(1)};
  const Credential ca = make_authority(validity).value();
  ASSERT_TRUE(save_certificate(scratch_.path(), "a",
                               make_certificate(ca, {"a", {}, {}}, validity).value(),
                               ca.certificate.get()));
  const ScratchDir elsewhere;
  const WorkingDirectory here(scratch_.path());
  RotationLimits limits;
  limits.looks_every = 0ns;
  const auto loaded = Credentials::load({.key = "fleet.key",
                                         .cert = "a.crt",
                                         .cert_key = "a.key",
                                         .ca = "ca.crt",
                                         .keylog = "log"},
                                        limits)
                          .value();
  // A key of the same name that is not meant.
  (void)make_key_file(elsewhere.path() / "fleet.key", "wrong").value();
  std::filesystem::current_path(elsewhere.path());
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "first");
  make("second");
  loaded->look(now_);
  EXPECT_EQ(label_of(loaded), "second");
  EXPECT_EQ(elsewhere.names(), std::vector<std::string>({"fleet.key"}));
}

TEST_F(ChangedFiles, CredentialsFromNoFileStay) {
  CredentialParts parts;
  parts.keys.push_back({"fleet", SecretBytes(kSharedKeyBytes), {}});
  const auto made = Credentials::make(std::move(parts)).value();
  made->look(now_);
  EXPECT_EQ(Credentials::latest(made), made);
}

}  // namespace
}  // namespace tendon::test
