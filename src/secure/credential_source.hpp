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

/// The files that credentials were loaded from. They are read again when they have changed, because
/// certificates expire while programs run.
///
/// Owns:    what was read last.
/// Threads: thread-safe.
/// Errors:  files that cannot be used are logged; what was read before them stays.
/// Blocks:  look(): on the disk. latest(): never.
/// Cost:    a look-up of each file, at most so often as the caller says.
class CredentialSource {
 public:
  using Clock = std::chrono::steady_clock;
  using Loaded = Result<std::shared_ptr<const Credentials>>;

  /// Before they are read for the first time. `load` reads them again.
  CredentialSource(CredentialFiles files, std::function<Loaded(const CredentialFiles&)> load);

  /// Reads the files again, where they have changed and nobody has looked for so long.
  void look(Clock::time_point now, std::chrono::nanoseconds every) TENDON_EXCLUDES(mutex_);
  /// Null: nothing has changed since the first time.
  [[nodiscard]] std::shared_ptr<const Credentials> latest() const TENDON_EXCLUDES(mutex_);

 private:
  /// By what a file is told from the one that was at its place before.
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
