// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <tendon/core/result.hpp>
#include <tendon/secure/credential_files.hpp>
#include <utility>

namespace tendon::cli {

/// A key, and certificates of a CA, for one run of a benchmark; its second process reads them too.
///
/// Owns:    a directory, which the destructor removes.
/// Threads: one at a time.
/// Errors:  make(): system, and those of the files.
/// Blocks:  on the disk.
/// Cost:    some milliseconds.
class BenchCredentials {
 public:
  [[nodiscard]] static Result<BenchCredentials> make();
  BenchCredentials(BenchCredentials&& other) noexcept
      : directory_(std::exchange(other.directory_, {})) {}
  BenchCredentials& operator=(BenchCredentials&&) = delete;
  ~BenchCredentials();

  [[nodiscard]] CredentialFiles key() const;
  /// P-256 certificates for the name "bench"; both ends present the same one.
  [[nodiscard]] CredentialFiles certificates() const;

 private:
  explicit BenchCredentials(std::filesystem::path directory) : directory_(std::move(directory)) {}

  std::filesystem::path directory_;
};

}  // namespace tendon::cli
