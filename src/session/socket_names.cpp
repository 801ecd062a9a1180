// SPDX-License-Identifier: Apache-2.0
#include "session/socket_names.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "core/process_wide.hpp"
#include "session/machine.hpp"
#include "session/nonce128.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.socket_names";
// The name of a socket that does not listen yet. Its process may be stopped or killed at that
// point.
constexpr std::string_view kUnnamed = "new-";
constexpr std::size_t kUnnamedDigits = 16;
constexpr std::chrono::seconds kUnnamedFor{60};
constexpr std::size_t kTokenDigits = 2 * sizeof(Nonce128);
// The place where nodes of a domain meet, and the one that serves while its holder is stopped.
constexpr std::size_t kStarDigits = 16;
constexpr std::array<std::string_view, 2> kStarSuffixes = {".zenoh", ".zenoh2"};
// Files beside a star: the lock of the process that serves, and Zenoh's own.
constexpr std::string_view kServes = ".serves";
constexpr std::string_view kLock = ".lock";
constexpr std::size_t kNamesOfStar = 3;

bool has_digits(std::string_view text, std::size_t count) {
  return text.size() == count &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_unnamed(std::string_view name) {
  return name.starts_with(kUnnamed) && has_digits(name.substr(kUnnamed.size()), kUnnamedDigits);
}

// The name of the star that a name belongs to; empty: to none.
std::string_view star_of(std::string_view name) {
  for (const std::string_view beside : {kServes, kLock})
    if (name.ends_with(beside)) name.remove_suffix(beside.size());
  for (const std::string_view suffix : kStarSuffixes)
    if (name.ends_with(suffix) &&
        has_digits(name.substr(0, name.size() - suffix.size()), kStarDigits))
      return name;
  return {};
}

/// One sweep of one directory.
class Sweep {
 public:
  Sweep(std::string directory, int fd, std::size_t most)
      : directory_(std::move(directory)), fd_(fd), most_(most) {}

  [[nodiscard]] Swept run(DIR* entries) {
    read(entries);
    // Starts at random, so that living names at the beginning do not always exclude the others.
    const std::size_t count = names_.size();
    const std::size_t first = count <= most_ ? 0 : any_below(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& name = names_[(first + i) % count];
      const bool is_star = !star_of(name).empty();
      if (swept_.looked_at + (is_star ? kNamesOfStar : 1) > most_) break;
      if (is_star)
        sweep_star(name);
      else
        sweep_socket(name);
    }
    return swept_;
  }

 private:
  void read(DIR* entries) {
    std::set<std::string, std::less<>> stars;
    std::size_t read_count = 0;
    while (const dirent* entry = readdir(entries)) {
      if (++read_count > kMostReadNames) break;
      const std::string_view name(entry->d_name);
      if (const std::string_view star = star_of(name); !star.empty())
        stars.emplace(star);
      else if (is_own_socket_name(name) || is_unnamed(name))
        names_.emplace_back(name);
    }
    names_.insert(names_.end(), stars.begin(), stars.end());
  }

  static std::size_t any_below(std::size_t count) {
    const auto random = random_nonce();
    if (!random) return 0;
    std::size_t number = 0;
    std::memcpy(&number, random->data(), sizeof number);
    return number % count;
  }

  [[nodiscard]] std::string path_of(const std::string& name) const {
    return directory_ + '/' + name;
  }
  [[nodiscard]] bool is_our_file(const std::string& name, mode_t type, struct stat& facts) const {
    return fstatat(fd_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
           (facts.st_mode & S_IFMT) == type && facts.st_uid == user_id();
  }

  // Asks with a datagram socket, so that no connection arrives, because a rendezvous takes only one
  // visitor. unix(7): EPROTOTYPE where a stream socket is bound, ECONNREFUSED where none is.
  [[nodiscard]] static bool is_bound(const std::string& path) {
    const auto address = unix_socket_address(path);
    if (!address) return true;  // we could not have bound such a path: leave it alone
    const OwnedFd probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return true;
    if (connect(probe.get(), address->get(), address->length) == 0) return true;
    return errno != ECONNREFUSED;
  }

  void remove(const std::string& name) {
    if (unlinkat(fd_, name.c_str(), 0) == 0) ++swept_.removed;
  }

  void sweep_socket(const std::string& name) {
    ++swept_.looked_at;
    struct stat facts {};
    if (!is_our_file(name, S_IFSOCK, facts)) return;
    // The kernel's stamp may be finer than time(), and a clock may be set back, so clamp at 0.
    const std::int64_t age = std::max<std::int64_t>(std::time(nullptr) - facts.st_ctime, 0);
    if (is_unnamed(name) && age < kUnnamedFor.count()) return;
    if (!is_bound(path_of(name))) remove(name);
  }

  // Holds both locks, so that nobody begins to serve meanwhile.
  void sweep_star(const std::string& name) {
    swept_.looked_at += kNamesOfStar;
    const std::string serves = name + std::string(kServes);
    const auto lock = take_file_lock(path_of(serves));
    if (!lock || !*lock) return;
    struct stat facts {};
    const std::string lock_of_zenoh = name + std::string(kLock);
    OwnedFd second;
    if (is_our_file(lock_of_zenoh, S_IFREG, facts)) {
      second = OwnedFd(openat(fd_, lock_of_zenoh.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (!second || flock(second.get(), LOCK_EX | LOCK_NB) != 0) return;
    }
    if (is_our_file(name, S_IFSOCK, facts)) {
      if (is_bound(path_of(name))) return;
      remove(name);
    }
    if (second) remove(lock_of_zenoh);
    remove(serves);
  }

  const std::string directory_;
  const int fd_;
  const std::size_t most_;
  std::vector<std::string> names_;
  Swept swept_;
};

}  // namespace

std::optional<FileId> file_id(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) return std::nullopt;
  return FileId{facts.st_dev, facts.st_ino};
}

std::optional<FileId> file_id(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return std::nullopt;
  return FileId{facts.st_dev, facts.st_ino};
}

bool is_own_socket_name(std::string_view name) {
  if (name.ends_with(kNodeSuffix)) name.remove_suffix(kNodeSuffix.size());
  return has_digits(name, kTokenDigits);
}

Result<FileId> name_socket(const std::string& path,
                           const std::function<Result<void>(const std::string&)>& bind) {
  TENDON_TRY(random, random_nonce());
  const std::string digits = to_hex(random).substr(0, kUnnamedDigits);
  const std::string unnamed = path.substr(0, path.rfind('/') + 1) + std::string(kUnnamed) + digits;
  auto bound = bind(unnamed);
  const auto file = bound ? file_id(unnamed) : std::nullopt;
  if (bound && !file) bound = system_error(kWhere, "lstat('" + unnamed + "')", errno);
  if (bound && rename(unnamed.c_str(), path.c_str()) != 0)
    bound = system_error(kWhere, "rename('" + unnamed + "', '" + path + "')", errno);
  if (bound) return *file;
  (void)unlink(unnamed.c_str());
  return std::move(bound).error();
}

Result<ListeningSocket> listen_at(const std::string& path, int backlog) {
  ListeningSocket listening;
  TENDON_TRY(file, name_socket(path, [&](const std::string& unnamed) -> Result<void> {
               TENDON_TRY(address, unix_socket_address(unnamed));
               OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
               if (!fd)
                 return system_error(kWhere, "listening on unix:" + path + ": socket", errno);
               if (::bind(fd.get(), address.get(), address.length) != 0 ||
                   ::listen(fd.get(), backlog) != 0)
                 return system_error(kWhere, "listening on unix:" + path, errno);
               listening.fd = std::move(fd);
               return {};
             }));
  listening.file = file;
  return listening;
}

void remove_name(const std::string& path, const FileId& file) {
  if (file_id(path) == file) (void)unlink(path.c_str());
}

Result<std::optional<OwnedFd>> take_file_lock(const std::string& path) {
  constexpr int kMostTries = 8;  // one more for each process that removes it meanwhile
  for (int tries = 0; tries < kMostTries; ++tries) {
    OwnedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return system_error(kWhere, "open('" + path + "')", errno);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<OwnedFd>();
      return system_error(kWhere, "flock('" + path + "')", errno);
    }
    if (file_id(path) == file_id(fd.get())) return std::optional<OwnedFd>(std::move(fd));
  }
  return std::optional<OwnedFd>();
}

Swept sweep_leftovers(const std::string& directory, std::size_t most) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()), &closedir);
  if (entries == nullptr) return {};
  return Sweep(directory, dirfd(entries.get()), most).run(entries.get());
}

void sweep_leftovers_at_start() {
  struct Done {
    Mutex mutex;
    std::set<std::string> asked TENDON_GUARDED_BY(mutex);
  };
  static constinit PerProcess<Done> every;
  Done& done = every.get();
  {
    const Lock lock(done.mutex);
    if (!done.asked.insert(asked_runtime_directory()).second) return;
  }
  std::size_t left = kMostSweptNames;
  for (const std::string& directory : existing_runtime_directories())
    left -= sweep_leftovers(directory, left).looked_at;
}

}  // namespace tendon::v0::detail
