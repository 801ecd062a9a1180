// SPDX-License-Identifier: Apache-2.0
#include "secure/credential_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.file";
constexpr int kMostLinks = 40;  // as in the kernel

std::string quoted(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

std::string mode_text(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

bool is_trusted(uid_t owner) { return owner == geteuid() || owner == 0; }

Error foreign_owner(const std::string& what, uid_t owner) {
  return Error{ErrorCode::permission_denied, kWhere,
               what + " belongs to uid " + std::to_string(owner) +
                   ", who may change it; legal are the owners uid " + std::to_string(geteuid()) +
                   " and root: move it, or change its owner (chown)"};
}

Error too_many_links(const std::filesystem::path& path) {
  return Error{ErrorCode::invalid_argument, kWhere,
               quoted(path) + " leads through symbolic links in a circle, or through more than " +
                   std::to_string(kMostLinks) + "; legal is a file, or links that lead to one"};
}

Error not_regular(const std::filesystem::path& path, bool is_directory) {
  return Error{ErrorCode::invalid_argument, kWhere,
               quoted(path) + " is " + (is_directory ? "a folder, and " : "") +
                   "no regular file; legal is one on a disk" +
                   (is_directory ? "" : " (shared keys may also be piped: --key-fd)")};
}

Result<struct stat> link_facts_of(const std::filesystem::path& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0)
    return system_error(kWhere, "lstat(" + quoted(path) + ")", errno);
  return facts;
}

Result<void> check_one_directory(const std::filesystem::path& directory) {
  TENDON_TRY(facts, link_facts_of(directory));
  const std::string what = "directory " + quoted(directory);
  if (!is_trusted(facts.st_uid)) return foreign_owner(what, facts.st_uid);
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (facts.st_mode & S_ISVTX) != 0) return {};
  return Error{ErrorCode::permission_denied, kWhere,
               what + " has mode " + mode_text(facts.st_mode) +
                   ": others may put another file in the place of one in it; let nobody else write "
                   "it: chmod go-w " +
                   quoted(directory)};
}

Result<struct stat> facts_of(int fd, const std::filesystem::path& path) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return system_error(kWhere, "fstat(" + quoted(path) + ")", errno);
  return facts;
}

Result<std::vector<gid_t>> own_groups() {
  const int count = getgroups(0, nullptr);
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(count, 0)));
  const int got = getgroups(static_cast<int>(groups.size()), groups.data());
  if (got < 0) return system_error(kWhere, "getgroups", errno);
  groups.resize(static_cast<std::size_t>(got));
  groups.push_back(getegid());
  return groups;
}

/// The names of a path, the first one last.
std::vector<std::filesystem::path> names_of(const std::filesystem::path& path) {
  const auto relative = path.relative_path();
  std::vector<std::filesystem::path> names(relative.begin(), relative.end());
  std::ranges::reverse(names);
  return names;
}

/// Where a symbolic link leads, which nobody else may change.
Result<std::filesystem::path> target_of(const std::filesystem::path& link, uid_t owner) {
  if (!is_trusted(owner)) return foreign_owner("symbolic link " + quoted(link), owner);
  std::error_code failure;
  auto target = std::filesystem::read_symlink(link, failure);
  if (failure) return system_error(kWhere, "readlink(" + quoted(link) + ")", failure.value());
  return target;
}

}  // namespace

bool is_for_group(const struct stat& file, uid_t user, std::span<const gid_t> groups_of_user) {
  return file.st_uid == 0 && user != 0 && (file.st_mode & 077) == S_IRGRP &&
         std::ranges::find(groups_of_user, file.st_gid) != groups_of_user.end();
}

Result<void> check_size(Bytes text, const std::filesystem::path& file) {
  if (text.size() <= kMaxCredentialFileBytes) return {};
  return Error{
      ErrorCode::limit_exceeded, kWhere,
      quoted(file) + " is larger than " + std::to_string(kMaxCredentialFileBytes) +
          " bytes, the most that a file of keys or certificates has: is it the right one?"};
}

bool has_secrets(Bytes text) {
  return as_text(text).find("PRIVATE KEY-----") != std::string_view::npos ||
         as_text(text).find("tendon-key-") != std::string_view::npos;
}

// Looks the path up as the kernel does, a name at a time. A link in a folder that another user may
// write could lead elsewhere the next time, wherever it leads now.
Result<void> check_directories(const std::filesystem::path& path) {
  std::error_code failure;
  const auto whole = std::filesystem::absolute(path.empty() ? "." : path, failure);
  if (failure) return system_error(kWhere, "getcwd for " + quoted(path), failure.value());
  std::filesystem::path here = whole.root_path();
  TENDON_CHECK(check_one_directory(here));
  int links = 0;
  for (auto names = names_of(whole); !names.empty();) {
    const auto name = std::move(names.back());
    names.pop_back();
    if (name == "..") here = here.parent_path();
    if (name.empty() || name == "." || name == "..") continue;
    const auto next = here / name;
    TENDON_TRY(facts, link_facts_of(next));
    if (S_ISLNK(facts.st_mode)) {
      if (++links > kMostLinks) return too_many_links(path);
      TENDON_TRY(target, target_of(next, facts.st_uid));
      if (target.is_absolute()) here = target.root_path();
      std::ranges::move(names_of(target), std::back_inserter(names));
      continue;
    }
    if (S_ISDIR(facts.st_mode)) TENDON_CHECK(check_one_directory(next));
    here = next;
  }
  return {};
}

Result<CredentialFile> CredentialFile::open(const std::filesystem::path& path) {
  // Without O_NONBLOCK, open() would wait for the writer of a FIFO.
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ELOOP) return too_many_links(path);
  if (!fd && errno == ENXIO) return not_regular(path, false);  // a socket
  if (!fd) return system_error(kWhere, "open(" + quoted(path) + ")", errno);
  TENDON_TRY(facts, facts_of(fd.get(), path));
  if (!S_ISREG(facts.st_mode)) return not_regular(path, S_ISDIR(facts.st_mode));
  return CredentialFile(path, std::move(fd));
}

Result<void> CredentialFile::check_access(FileReaders readers, std::string_view exposed) const {
  TENDON_TRY(facts, facts_of(fd_.get(), path_));
  if (!is_trusted(facts.st_uid)) return foreign_owner(quoted(path_), facts.st_uid);
  TENDON_TRY(groups, own_groups());
  if (readers == FileReaders::owner_only && (facts.st_mode & 077) != 0 &&
      !is_for_group(facts, geteuid(), groups)) {
    return Error{ErrorCode::permission_denied, kWhere,
                 quoted(path_) + " has mode " + mode_text(facts.st_mode) +
                     ": others may read or write it; legal is 0600 or less: chmod 600 " +
                     quoted(path_) + ", and " + std::string(exposed)};
  }
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{ErrorCode::permission_denied, kWhere,
                 quoted(path_) + " has mode " + mode_text(facts.st_mode) +
                     ": others may write it; let nobody else: chmod go-w " + quoted(path_)};
  }
  return check_directories(path_);
}

Result<SecretBytes> CredentialFile::read() const {
  TENDON_TRY(facts, facts_of(fd_.get(), path_));
  // One byte more than the size shows the end of the file. The buffer has the size of the file,
  // because a process may not be allowed to lock enough memory for the longest.
  constexpr std::size_t kMost = kMaxCredentialFileBytes + 1;
  SecretBytes room(std::min(static_cast<std::size_t>(facts.st_size) + 1, kMost));
  std::size_t size_bytes = 0;
  for (ssize_t got = -1; got != 0 && size_bytes < kMost;) {
    if (size_bytes == room.bytes().size()) {  // the file has grown
      SecretBytes larger(kMost);
      std::ranges::copy(room.bytes(), larger.writable().begin());
      room = std::move(larger);
    }
    const MutableBytes rest = room.writable().subspan(size_bytes);
    got = pread(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(size_bytes));
    if (got < 0 && errno != EINTR)
      return system_error(kWhere, "read(" + quoted(path_) + ")", errno);
    size_bytes += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  const Bytes text = room.bytes().first(size_bytes);
  TENDON_CHECK(check_size(text, path_));
  return SecretBytes::copy_of(text);
}

Result<void> CredentialFile::claim() const {
  const Error taken{ErrorCode::busy, kWhere, "another program changes " + quoted(path_) + " now"};
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return taken;
    return system_error(kWhere, "flock(" + quoted(path_) + ")", errno);
  }
  TENDON_TRY(mine, facts_of(fd_.get(), path_));
  struct stat named {};
  if (stat(path_.c_str(), &named) != 0 || named.st_dev != mine.st_dev ||
      named.st_ino != mine.st_ino)
    return taken;
  return {};
}

}  // namespace tendon::v0::detail
