// SPDX-License-Identifier: Apache-2.0
#include "secure/credential_source.hpp"

#include <sys/stat.h>

#include <string>
#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail::secure {
namespace {

std::int64_t ns_of(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

CredentialSource::CredentialSource(CredentialFiles files,
                                   std::function<Loaded(const CredentialFiles&)> load)
    : files_(std::move(files)), load_(std::move(load)), read_(stamps()) {}

// A missing file has an empty stamp.
std::vector<CredentialSource::Stamp> CredentialSource::stamps() const {
  std::vector<Stamp> all;
  for (const std::string* file : {&files_.key, &files_.cert, &files_.cert_key, &files_.ca}) {
    struct stat facts {};
    if (file->empty() || ::stat(file->c_str(), &facts) != 0) {
      all.emplace_back();
      continue;
    }
    all.push_back({.device = facts.st_dev,
                   .number = facts.st_ino,
                   .size_bytes = facts.st_size,
                   .modified_ns = ns_of(facts.st_mtim),
                   .changed_ns = ns_of(facts.st_ctim)});
  }
  return all;
}

void CredentialSource::look(Clock::time_point now, std::chrono::nanoseconds every) {
  {
    const Lock lock(mutex_);
    if (now - looked_ < every) return;
    looked_ = now;
  }
  // Taken before the files are read, so that a later change is seen next time.
  std::vector<Stamp> found = stamps();
  {
    const Lock lock(mutex_);
    if (found == read_) return;
  }
  auto loaded = load_(files_);
  if (!loaded) {
    log(LogLevel::warn, "secure.credentials",
        "the files of credentials have changed and cannot be used, so links go on with what was "
        "read before: " +
            loaded.error().detail);
    return;
  }
  const Lock lock(mutex_);
  read_ = std::move(found);
  latest_ = *std::move(loaded);
}

std::shared_ptr<const Credentials> CredentialSource::latest() const {
  const Lock lock(mutex_);
  return latest_;
}

}  // namespace tendon::v0::detail::secure
