// SPDX-License-Identifier: Apache-2.0
#include "secure/certificate_files.hpp"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <tendon/tensor/atomic_file.hpp>
#include <utility>
#include <vector>

#include "secure/credential_file.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.certificate";
constexpr std::string_view kAuthorityCertificate = "ca.crt";
constexpr std::string_view kAuthorityKey = "ca.key";

/// The contents of a file to be written.
struct NewFile {
  std::filesystem::path path;
  SecretBytes text;
  FileReaders readers;
};

Result<SecretBytes> text_in(BIO* memory) {
  char* text = nullptr;
  const long size_bytes = BIO_get_mem_data(memory, &text);
  return SecretBytes::copy_of(
      {reinterpret_cast<const std::byte*>(text), static_cast<std::size_t>(size_bytes)});
}

Result<SecretBytes> pem_of(const X509* certificate) {
  const CryptoErrors errors;
  const CryptoOwned<BIO> memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || PEM_write_bio_X509(memory.get(), certificate) != 1)
    return errors.failed(kWhere, "write a certificate");
  return text_in(memory.get());
}

/// Writes PKCS #8. libcrypto clears the memory that it grew meanwhile.
Result<SecretBytes> pem_of(const EVP_PKEY* key) {
  const CryptoErrors errors;
  const CryptoOwned<BIO> memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr ||
      PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return errors.failed(kWhere, "write a key");
  return text_in(memory.get());
}

Result<void> make_directory(const std::filesystem::path& directory) {
  TENDON_CHECK(check_directories((directory / "").parent_path().parent_path()));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(kWhere, "mkdir('" + directory.string() + "')", errno);
  return check_directories(directory);
}

/// Writes all files or none. A kill may leave some of them, but each is whole.
Result<void> write_all(const std::vector<NewFile>& files) {
  std::vector<AtomicFile> written;
  for (const NewFile& file : files) {
    TENDON_TRY(one, AtomicFile::create(file.path, ExistingFile::keep, file.readers));
    TENDON_CHECK(one.write(file.text.bytes()));
    written.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto committed = written[i].commit();
    if (committed) continue;
    for (std::size_t before = 0; before < i; ++before) unlink(files[before].path.c_str());
    return committed;
  }
  return {};
}

Result<std::vector<NewFile>> files_of(const CertificateFiles& paths, const Credential& credential) {
  TENDON_TRY(certificate, pem_of(credential.certificate.get()));
  TENDON_TRY(key, pem_of(credential.key.get()));
  std::vector<NewFile> files;
  files.push_back({paths.key, std::move(key), FileReaders::owner_only});
  // Group or others may write no certificate that is to be read again, whatever the umask is.
  files.push_back({paths.certificate, std::move(certificate), FileReaders::everybody});
  return files;
}

}  // namespace

Result<CertificateFiles> save_authority(const std::filesystem::path& directory,
                                        const Credential& authority) {
  const auto certificate = directory / kAuthorityCertificate;
  CertificateFiles paths{certificate, directory / kAuthorityKey, certificate};
  TENDON_CHECK(make_directory(directory));
  TENDON_TRY(files, files_of(paths, authority));
  TENDON_CHECK(write_all(files));
  return paths;
}

Result<Credential> load_authority(const std::filesystem::path& directory) {
  const auto certificate_file = directory / kAuthorityCertificate;
  const auto key_file = directory / kAuthorityKey;
  TENDON_TRY(chain, parse_file(certificate_file, FileReaders::everybody, parse_certificates));
  TENDON_TRY(key, parse_file(key_file, FileReaders::owner_only, parse_private_key));
  const CryptoErrors errors;
  if (!is_authority(chain.front().get()) ||
      X509_check_private_key(chain.front().get(), key.get()) != 1) {
    return Error{ErrorCode::corrupt_data, kWhere,
                 "'" + key_file.string() + "' is not the key of '" + certificate_file.string() +
                     "', or that is no CA: make one by `tendon key ca`"};
  }
  return Credential{std::move(chain.front()), std::move(key)};
}

Result<CertificateFiles> save_certificate(const std::filesystem::path& directory,
                                          const std::string& name, const Credential& member,
                                          const X509* authority) {
  CertificateFiles paths{directory / (name + ".crt"), directory / (name + ".key"),
                         directory / kAuthorityCertificate};
  if (paths.certificate == paths.authority) {
    return Error{
        ErrorCode::invalid_argument, kWhere,
        "a member cannot be called '" + name + "', as the file of its CA is: name another"};
  }
  TENDON_CHECK(make_directory(directory));
  TENDON_TRY(files, files_of(paths, member));
  TENDON_TRY(authority_text, pem_of(authority));
  std::error_code ignored;
  if (!std::filesystem::exists(paths.authority, ignored)) {
    files.push_back({paths.authority, std::move(authority_text), FileReaders::everybody});
  } else {
    TENDON_TRY(there, CredentialFile::open(paths.authority));
    TENDON_CHECK(there.check_access(FileReaders::everybody));
    TENDON_TRY(text, there.read());
    if (!std::ranges::equal(text.bytes(), authority_text.bytes())) {
      return Error{
          ErrorCode::permission_denied, kWhere,
          "'" + paths.authority.string() + "' exists, and is of another CA: name another folder"};
    }
  }
  TENDON_CHECK(write_all(files));
  return paths;
}

}  // namespace tendon::v0::detail
