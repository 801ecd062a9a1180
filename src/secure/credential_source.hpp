// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/secure/credential_files.hpp>
#include <vector>

namespace tendon::v0::detail::secure {

class Credentials;

/// The files from which credentials were loaded. They are read again after a change, because
/// certificates expire while programs run.
///
/// Owns:    the credentials of the latest files.
/// Threads: thread-safe.
/// Errors:  unusable files are logged; the earlier credentials stay.
/// Blocks:  look(): on the disk. latest(): never.
/// Cost:    a look-up of each file, at most as often as the caller allows.
class CredentialSource {
 public:
  using Clock = std::chrono::steady_clock;
  using Loaded = Result<std::shared_ptr<const Credentials>>;

  /// The files must not have been read yet. `load` reads them again.
  CredentialSource(CredentialFiles files, std::function<Loaded(const CredentialFiles&)> load);

  /// Reads changed files again, if `every` has passed since the last look.
  void look(Clock::time_point now, std::chrono::nanoseconds every) TENDON_EXCLUDES(mutex_);
  /// Null: the files have not changed since they were first read.
  [[nodiscard]] std::shared_ptr<const Credentials> latest() const TENDON_EXCLUDES(mutex_);

 private:
  /// The facts that tell a file from an earlier one at the same path.
  struct Stamp {
    dev_t device = 0;
    ino_t number = 0;
    off_t size_bytes = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] std::vector<Stamp> stamps() const;

  const CredentialFiles files_;
  const std::function<Loaded(const CredentialFiles&)> load_;
  mutable Mutex mutex_;
  Clock::time_point looked_ TENDON_GUARDED_BY(mutex_) = Clock::now();
  std::vector<Stamp> read_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<const Credentials> latest_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail::secure
