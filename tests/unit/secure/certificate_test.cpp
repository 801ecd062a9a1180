// SPDX-License-Identifier: Apache-2.0
#include "secure/certificate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "secure/certificate_check.hpp"
#include "secure/certificate_files.hpp"
#include "secure/certificate_maker.hpp"
#include "secure/credential_file.hpp"
#include "secure/utc_text.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/secure/certificates.hpp"

namespace tendon::test {
namespace {

using detail::CertificateChain;
using detail::Credential;
using detail::Validity;
using std::chrono::days;
using testing::ElementsAre;
using testing::HasSubstr;

const auto kNow = detail::utc_now();
const Validity kValid{kNow - days(1), kNow + days(30)};

Credential authority() { return detail::make_authority({kNow - days(1), kNow + days(60)}).value(); }
Credential member_of(const Credential& ca, const Validity& validity = kValid) {
  return detail::make_certificate(ca, {"worker-3", {"a.example"}, {"10.0.0.5", "fd00::5"}},
                                  validity)
      .value();
}
CertificateChain chain_of(Credential member) {
  CertificateChain chain;
  chain.push_back(std::move(member.certificate));
  return chain;
}

/// The faults of a chain for a peer that trusts `ca`, one per line.
std::string faults_of(const CertificateChain& chain, const Credential* ca) {
  std::vector<X509*> trusted;
  if (ca != nullptr) trusted.push_back(ca->certificate.get());
  std::string all;
  for (const Error& fault : detail::faults_of_member(chain, trusted, kNow)) {
    EXPECT_EQ(fault.code, ErrorCode::permission_denied);
    all += fault.detail + "\n";
  }
  return all;
}

void remove(X509* certificate, int extension) {
  X509_EXTENSION_free(
      X509_delete_ext(certificate, X509_get_ext_by_NID(certificate, extension, -1)));
}
void set(X509* certificate, int extension, const char* value) {
  remove(certificate, extension);
  const detail::CryptoOwned<X509_EXTENSION> made(
      X509V3_EXT_conf_nid(nullptr, nullptr, extension, value));
  ASSERT_EQ(X509_add_ext(certificate, made.get(), -1), 1);
}
void sign_again(const Credential& member, const Credential& by) {
  ASSERT_GT(X509_sign(member.certificate.get(), by.key.get(), EVP_sha256()), 0);
}

/// Verifies with libcrypto alone, as any other program would.
bool is_trusted(X509* certificate, X509* ca, int purpose) {
  const detail::CryptoOwned<X509_STORE> store(X509_STORE_new());
  const detail::CryptoOwned<X509_STORE_CTX> context(X509_STORE_CTX_new());
  X509_STORE_add_cert(store.get(), ca);
  X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_X509_STRICT);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  return X509_verify_cert(context.get()) == 1;
}

TEST(Certificate, IsOfItsAuthorityForBothEnds) {
  const Credential ca = authority();
  const Credential member = member_of(ca);
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER})
    EXPECT_TRUE(is_trusted(member.certificate.get(), ca.certificate.get(), purpose)) << purpose;
  const Credential foreign = authority();
  EXPECT_FALSE(
      is_trusted(member.certificate.get(), foreign.certificate.get(), X509_PURPOSE_SSL_CLIENT));
  EXPECT_EQ(faults_of(chain_of(member_of(ca)), &ca), "");
}

TEST(Certificate, SaysWhatItIs) {
  const Credential ca = authority();
  const Credential member = member_of(ca);
  X509* const certificate = member.certificate.get();
  EXPECT_EQ(X509_get_version(certificate), X509_VERSION_3);
  EXPECT_TRUE(EVP_PKEY_is_a(X509_get0_pubkey(certificate), "EC"));
  EXPECT_EQ(EVP_PKEY_get_bits(X509_get0_pubkey(certificate)), 256);
  EXPECT_FALSE(detail::is_authority(certificate));
  EXPECT_EQ(X509_get_extended_key_usage(certificate),
            static_cast<std::uint32_t>(XKU_SSL_CLIENT | XKU_SSL_SERVER));
  EXPECT_EQ(X509_get_key_usage(certificate), static_cast<std::uint32_t>(KU_DIGITAL_SIGNATURE));
  EXPECT_THAT(detail::names_in(certificate),
              ElementsAre("tendon:worker-3", "dns:a.example", "ip:10.0.0.5", "ip:fd00::5"));
  EXPECT_EQ(detail::validity_of(certificate).begins, kValid.begins);
  EXPECT_EQ(detail::validity_of(certificate).ends, kValid.ends);
  EXPECT_TRUE(detail::is_authority(ca.certificate.get()));
  EXPECT_EQ(X509_get_pathlen(ca.certificate.get()), 0);
}

TEST(Certificate, NoTwoAreTheSame) {
  const Credential ca = authority();
  const Credential one = member_of(ca);
  const Credential other = member_of(ca);
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(one.certificate.get()),
                             X509_get0_serialNumber(other.certificate.get())),
            0);
  EXPECT_NE(X509_check_private_key(one.certificate.get(), other.key.get()), 1);
  EXPECT_NE(X509_NAME_cmp(X509_get_subject_name(ca.certificate.get()),
                          X509_get_subject_name(authority().certificate.get())),
            0);
  ERR_clear_error();
}

TEST(Certificate, TheQueueOfErrorsOfTheProgramStaysAsItWas) {
  ERR_clear_error();
  EXPECT_TRUE(fails_with(detail::parse_certificates(as_bytes("no certificate"), "file"),
                         ErrorCode::corrupt_data));
  EXPECT_TRUE(
      fails_with(detail::parse_private_key(as_bytes("no key"), "file"), ErrorCode::corrupt_data));
  (void)faults_of(chain_of(member_of(authority())), nullptr);
  EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST(Certificate, NamesThatCannotBeInOneAreNamed) {
  const Credential ca = authority();
  const auto made = [&](const detail::CertificateNames& names) {
    return detail::make_certificate(ca, names, kValid);
  };
  constexpr auto kCode = ErrorCode::invalid_argument;
  for (const std::string name : {"", "a b", "a,DNS:b", "-a"})
    EXPECT_TRUE(fails_with(made({name, {}, {}}), kCode, "the name '" + name + "'"));
  for (const std::string dns :
       {"", "*.example", "a..b", ".a", "a.", "a,IP:1.2.3.4", "-a.b", "a_b", "a b"})
    EXPECT_TRUE(fails_with(made({"a", {dns}, {}}), kCode, "the DNS name '" + dns + "'"));
  EXPECT_TRUE(fails_with(made({"a", {std::string(64, 'a')}, {}}), kCode));
  for (const std::string address : {"", "10.0.0", "10.0.0.5/8", "fd00::g", "a.example"})
    EXPECT_TRUE(fails_with(made({"a", {}, {address}}), kCode, "the address '" + address + "'"));
}

TEST(Certificate, ItDoesNotOutliveItsAuthority) {
  const Credential ca = authority();
  EXPECT_TRUE(fails_with(detail::make_certificate(ca, {"a", {}, {}}, {kNow, kNow + days(61)}),
                         ErrorCode::invalid_argument, "would outlive its CA"));
}

TEST(CertificateFault, DatesAreNamed) {
  const Credential ca = authority();
  EXPECT_THAT(faults_of(chain_of(member_of(ca, {kNow - days(9), kNow - days(2)})), &ca),
              HasSubstr("it has expired, at " + detail::utc_text(kNow - days(2))));
  EXPECT_THAT(faults_of(chain_of(member_of(ca, {kNow + days(2), kNow + days(9)})), &ca),
              HasSubstr("it is not yet valid, but from " + detail::utc_text(kNow + days(2))));
  EXPECT_EQ(detail::faults_of_authority(ca.certificate.get(), kNow).size(), 0u);
  EXPECT_EQ(detail::faults_of_authority(ca.certificate.get(), kNow + days(61)).size(), 1u);
  EXPECT_EQ(detail::faults_of_authority(ca.certificate.get(), kNow - days(2)).size(), 1u);
}

TEST(CertificateFault, AForeignAuthorityIsNamed) {
  const Credential ca = authority();
  const Credential foreign = authority();
  EXPECT_EQ(faults_of(chain_of(member_of(foreign)), &ca),
            "a peer refuses it: it is of another CA than the one that was given\n");
  EXPECT_EQ(faults_of(chain_of(member_of(foreign)), nullptr), "") << "no CA was given";
  // A CA that has taken the name of ours has another key.
  Credential bent = member_of(ca);
  sign_again(bent, foreign);
  EXPECT_THAT(faults_of(chain_of(std::move(bent)), &ca), HasSubstr("of another CA"));
}

TEST(CertificateFault, OneThatSignsItselfIsNamed) {
  const Credential ca = authority();
  for (const Credential* trusted : {&ca, static_cast<const Credential*>(nullptr)}) {
    Credential member = member_of(ca);
    X509_set_issuer_name(member.certificate.get(), X509_get_subject_name(member.certificate.get()));
    remove(member.certificate.get(), NID_authority_key_identifier);
    sign_again(member, member);
    EXPECT_THAT(faults_of(chain_of(std::move(member)), trusted), HasSubstr("signed by itself"));
  }
}

TEST(CertificateFault, OneThatNamesNobodyIsNamed) {
  const Credential ca = authority();
  Credential member = member_of(ca);
  remove(member.certificate.get(), NID_subject_alt_name);
  sign_again(member, ca);
  EXPECT_THAT(detail::names_in(member.certificate.get()), ElementsAre());
  EXPECT_THAT(faults_of(chain_of(std::move(member)), &ca), HasSubstr("it names nobody"));
  Credential addresses_only = member_of(ca);
  set(addresses_only.certificate.get(), NID_subject_alt_name, "IP:10.0.0.5");
  sign_again(addresses_only, ca);
  EXPECT_THAT(faults_of(chain_of(std::move(addresses_only)), &ca), HasSubstr("it names nobody"));
}

TEST(CertificateFault, AnUsageThatIsMissingIsNamed) {
  const Credential ca = authority();
  for (const auto& [has, lacks] :
       {std::pair("serverAuth", "clientAuth"), std::pair("clientAuth", "serverAuth")}) {
    Credential member = member_of(ca);
    set(member.certificate.get(), NID_ext_key_usage, has);
    sign_again(member, ca);
    const std::string faults = faults_of(chain_of(std::move(member)), &ca);
    EXPECT_THAT(faults, HasSubstr(std::string("it lacks the extended key usage ") + lacks));
    EXPECT_THAT(faults, testing::Not(HasSubstr(std::string("usage ") + has)));
  }
}

TEST(CertificateFault, AChainThatNoPeerTakesIsNamed) {
  const Certificate root = Certificate::authority("a root");
  std::vector<Certificate> between;
  for (const char* name : {"the first", "the second", "the third"}) {
    between.push_back((between.empty() ? root : between.back()).sign_authority(name));
    CertificateChain chain;
    chain.push_back(between.back().sign({}).certificate());
    for (auto one = between.rbegin(); one != between.rend(); ++one)
      chain.push_back(one->certificate());
    const auto trusted = root.certificate();
    const std::vector<X509*> authorities{trusted.get()};
    const auto faults = detail::faults_of_member(chain, authorities, kNow);
    ASSERT_EQ(faults.size(), between.size() > 2 ? 1u : 0u) << between.size();
    if (!faults.empty()) {
      EXPECT_THAT(faults[0].detail,
                  HasSubstr("more than 2 certificates are between it and its CA"));
    }
  }
}

TEST(CertificateFault, AnAuthorityBelowOursIsNoAuthority) {
  const Credential ca = authority();
  Credential below = authority();
  X509_set_issuer_name(below.certificate.get(), X509_get_subject_name(ca.certificate.get()));
  remove(below.certificate.get(), NID_authority_key_identifier);
  sign_again(below, ca);
  CertificateChain chain = chain_of(member_of(below));
  chain.push_back(std::move(below.certificate));
  EXPECT_THAT(faults_of(chain, &ca), HasSubstr("path length"));
}

// Files -----------------------------------------------------------------------------------------

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
mode_t mode_of(const std::filesystem::path& path) {
  struct stat facts {};
  stat(path.c_str(), &facts);
  return facts.st_mode & 07777;
}

TEST(CertificateFiles, AreReadAgainAndKeysOnlyByTheirOwner) {
  const ScratchDir folder;
  const auto ca_folder = folder.path() / "ca";
  const auto before = umask(022);
  ASSERT_TRUE(succeeds(detail::save_authority(ca_folder, authority())));
  const Credential ca = detail::load_authority(ca_folder).value();
  const auto files = detail::save_certificate(folder.path() / "worker-3/", "worker-3",
                                              member_of(ca), ca.certificate.get())
                         .value();
  umask(before);
  EXPECT_EQ(mode_of(ca_folder), 0700u);
  EXPECT_EQ(mode_of(ca_folder / "ca.crt"), 0644u);
  EXPECT_EQ(mode_of(ca_folder / "ca.key"), 0600u);
  EXPECT_EQ(mode_of(files.key), 0600u);
  EXPECT_EQ(mode_of(files.certificate), 0644u);
  EXPECT_EQ(text_of(files.authority), text_of(ca_folder / "ca.crt"));
  const auto chain =
      detail::parse_certificates(as_bytes(text_of(files.certificate)), files.certificate).value();
  const auto key = detail::parse_private_key(as_bytes(text_of(files.key)), files.key).value();
  EXPECT_EQ(X509_check_private_key(chain.front().get(), key.get()), 1);
  EXPECT_EQ(faults_of(chain, &ca), "");
}

TEST(CertificateFiles, NothingIsOverwrittenAndNothingHalfIsLeft) {
  const ScratchDir folder;
  const Credential ca = authority();
  const auto save = [&](const Credential& of) {
    return detail::save_certificate(folder.path(), "a", member_of(of), of.certificate.get());
  };
  std::ofstream(folder.path() / "a.crt") << "mine";
  EXPECT_TRUE(fails_with(save(ca), ErrorCode::permission_denied, "a.crt' exists"));
  EXPECT_EQ(folder.names(), std::vector<std::string>({"a.crt"}));
  EXPECT_EQ(text_of(folder.path() / "a.crt"), "mine");
  std::filesystem::remove(folder.path() / "a.crt");
  ASSERT_TRUE(succeeds(save(ca)));
  EXPECT_TRUE(fails_with(save(authority()), ErrorCode::permission_denied, "of another CA"));
  EXPECT_TRUE(fails_with(detail::save_authority(folder.path(), ca), ErrorCode::permission_denied,
                         "ca.crt' exists"));
  EXPECT_EQ(folder.names(), std::vector<std::string>({"a.crt", "a.key", "ca.crt"}));
  EXPECT_TRUE(
      fails_with(detail::save_certificate(folder.path(), "ca", member_of(ca), ca.certificate.get()),
                 ErrorCode::invalid_argument, "name another"));
}

TEST(CertificateFiles, AnAuthorityThatOthersMayHaveChangedIsRefused) {
  const ScratchDir folder;
  ASSERT_TRUE(succeeds(detail::save_authority(folder.path(), authority())));
  const auto refused_with_mode = [&](const std::filesystem::path& path, mode_t mode, mode_t right) {
    chmod(path.c_str(), mode);
    const auto answer = fails_with(detail::load_authority(folder.path()),
                                   ErrorCode::permission_denied, "'" + path.string());
    chmod(path.c_str(), right);
    return answer;
  };
  EXPECT_TRUE(refused_with_mode(folder.path() / "ca.key", 0640, 0600));
  EXPECT_TRUE(refused_with_mode(folder.path() / "ca.crt", 0664, 0644));
  EXPECT_TRUE(refused_with_mode(folder.path(), 0777, 0700));
  EXPECT_TRUE(succeeds(detail::load_authority(folder.path())));
}

TEST(CertificateFiles, AKeyOfAnotherCertificateIsNamed) {
  const ScratchDir folder;
  const ScratchDir other;
  ASSERT_TRUE(succeeds(detail::save_authority(folder.path(), authority())));
  ASSERT_TRUE(succeeds(detail::save_authority(other.path(), authority())));
  std::filesystem::rename(other.path() / "ca.key", folder.path() / "ca.key");
  EXPECT_TRUE(fails_with(detail::load_authority(folder.path()), ErrorCode::corrupt_data,
                         "is not the key of"));
}

TEST(CertificateFiles, DamagedOnesAreRefused) {
  const ScratchDir folder;
  ASSERT_TRUE(succeeds(detail::save_authority(folder.path(), authority())));
  const std::string certificate = text_of(folder.path() / "ca.crt");
  const std::string key = text_of(folder.path() / "ca.key");
  for (std::size_t size = 0; size + 1 < certificate.size(); size += 7) {
    EXPECT_TRUE(fails_with(
        detail::parse_certificates(as_bytes(std::string_view(certificate).substr(0, size)), "f"),
        ErrorCode::corrupt_data, "'f'"));
  }
  for (std::size_t size = 0; size + 1 < key.size(); size += 7) {
    EXPECT_TRUE(
        fails_with(detail::parse_private_key(as_bytes(std::string_view(key).substr(0, size)), "f"),
                   ErrorCode::corrupt_data, "'f'"));
  }
  EXPECT_TRUE(fails_with(
      detail::parse_certificates(as_bytes(certificate + certificate.substr(0, 200)), "f"),
      ErrorCode::corrupt_data));
  std::string bent = certificate;
  bent[100] = bent[100] == 'A' ? 'B' : 'A';
  (void)detail::parse_certificates(as_bytes(bent), "f");  // may be another certificate
}

}  // namespace
}  // namespace tendon::test
