// SPDX-License-Identifier: Apache-2.0
#include "session/machine.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tendon/session/limits.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.machine";
constexpr std::size_t kTokenDigits = 2 * sizeof(Nonce128);

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The 16 bytes of 32 hexadecimal digits, ignoring dashes; all zero for anything else.
Nonce128 parse_uuid(std::string_view text) {
  Nonce128 token{};
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-' || c == '\n') continue;
    const int value = hex_value(c);
    if (value < 0 || digits == kTokenDigits) return Nonce128{};
    token[digits / 2] = (token[digits / 2] << 4) | static_cast<std::byte>(value);
    ++digits;
  }
  return digits == kTokenDigits ? token : Nonce128{};
}

// The longest socket name there, which is that of a node.
constexpr std::size_t kLongestName = kTokenDigits + kNodeSuffix.size();

std::string system_directory() { return "/tmp/tendon-" + std::to_string(user_id()); }
std::string user_base() { return "/run/user/" + std::to_string(user_id()); }
std::string user_directory() { return user_base() + "/tendon"; }

bool is_our_directory(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == user_id();
}

Error unusable(std::string_view asked, const std::string& why) {
  return Error{ErrorCode::invalid_argument, kWhere,
               "TENDON_RUNTIME_DIR='" + std::string(asked) + "' " + why};
}

// Checks the directory that TENDON_RUNTIME_DIR names. Precondition: it is not empty.
Result<std::string> asked_directory(std::string_view asked) {
  std::string directory(asked);
  if (directory.front() != '/') return unusable(asked, "is relative; legal is an absolute path");
  // With a slash at its end, a symbolic link would look like its target directory.
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  const std::size_t longest = kMaxUnixPathBytes - 1 - kLongestName;
  if (directory.size() > longest) {
    return unusable(asked, "has " + std::to_string(directory.size()) + " bytes; legal are 1-" +
                               std::to_string(longest) + ", as names of sockets follow it");
  }
  return directory;
}

Error unsafe_directory(const std::string& directory, std::string_view why) {
  return Error{ErrorCode::permission_denied, kWhere,
               "runtime directory '" + directory + "' " + std::string(why) +
                   "; legal is a directory owned by uid " + std::to_string(user_id()) +
                   " with mode 0700, no symbolic link: mend it, or set TENDON_RUNTIME_DIR to "
                   "another one"};
}

Result<void> check_facts(const std::string& directory, const struct stat& facts) {
  if (S_ISLNK(facts.st_mode)) return unsafe_directory(directory, "is a symbolic link");
  if (!S_ISDIR(facts.st_mode)) return unsafe_directory(directory, "is no directory");
  if (facts.st_uid != user_id()) {
    return unsafe_directory(directory, "belongs to uid " + std::to_string(facts.st_uid));
  }
  if ((facts.st_mode & 07777 & ~0700U) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", facts.st_mode & 07777U);
    return unsafe_directory(directory, "has mode " + std::string(mode.data()));
  }
  return {};
}

Error cannot_be_made(const std::string& directory, int cause) {
  Error error = system_error(kWhere, "mkdir('" + directory + "')", cause);
  error.detail += cause == ENOENT
                      ? "; the last part of the path alone is made: make those before it"
                      : "; set TENDON_RUNTIME_DIR to a directory that uid " +
                            std::to_string(user_id()) + " may write to";
  return error;
}

Result<std::string> make_directory(std::string directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return cannot_be_made(directory, errno);
  TENDON_CHECK(check_directory(directory));
  return directory;
}

bool is_our_socket(const struct stat& facts) {
  return S_ISSOCK(facts.st_mode) && facts.st_uid == user_id();
}

Nonce128 read_boot_id() {
  const OwnedFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return Nonce128{};
  std::array<char, 64> text{};
  const ssize_t size = read(file.get(), text.data(), text.size());
  return size > 0 ? parse_uuid({text.data(), static_cast<std::size_t>(size)}) : Nonce128{};
}

}  // namespace

// The id is kept while the process lives; a failed read is tried again.
Nonce128 boot_id() {
  static const Nonce128 kFirst = read_boot_id();
  return kFirst == Nonce128{} ? read_boot_id() : kFirst;
}

std::string host_name() {
  std::array<char, kMaxIdentityTextBytes + 1> text{};
  // Without room for the final zero gethostname may omit it; the last byte stays zero.
  if (gethostname(text.data(), text.size() - 1) != 0 || text[0] == '\0') return "unknown";
  return text.data();
}

std::int64_t process_id() { return getpid(); }
std::uint32_t user_id() { return geteuid(); }

std::string asked_runtime_directory() {
  const char* value = std::getenv("TENDON_RUNTIME_DIR");
  return value == nullptr ? "" : value;
}

bool runtime_directory_is_asked_for() { return !asked_runtime_directory().empty(); }

Result<void> check_directory(const std::string& directory) {
  struct stat facts {};
  // lstat: a link planted in /tmp must not lead us into a directory of its maker's choice.
  if (lstat(directory.c_str(), &facts) != 0) {
    return system_error(kWhere, "lstat('" + directory + "')", errno);
  }
  return check_facts(directory, facts);
}

Result<OwnedFd> open_directory(const std::string& directory) {
  OwnedFd fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return system_error(kWhere, "open('" + directory + "')", errno);
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0)
    return system_error(kWhere, "fstat('" + directory + "')", errno);
  TENDON_CHECK(check_facts(directory, facts));
  return fd;
}

Result<std::string> runtime_directory() { return runtime_directory(asked_runtime_directory()); }

Result<std::string> runtime_directory(std::string_view asked) {
  if (!asked.empty()) {
    TENDON_TRY(directory, asked_directory(asked));
    auto made = make_directory(std::move(directory));
    if (!made) made.error().detail = "TENDON_RUNTIME_DIR: " + made.error().detail;
    return made;
  }
  if (is_our_directory(user_base())) {
    // A full or read-only /run must not prevent a rendezvous: /tmp serves as well.
    std::string directory = user_directory();
    if (mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) {
      TENDON_CHECK(check_directory(directory));
      return directory;
    }
  }
  return make_directory(system_directory());
}

std::vector<std::string> existing_runtime_directories() {
  std::vector<std::string> candidates;
  if (const std::string asked = asked_runtime_directory(); asked.empty()) {
    candidates = {user_directory(), system_directory()};
  } else if (auto directory = asked_directory(asked)) {
    candidates.push_back(*std::move(directory));
  }
  std::erase_if(candidates,
                [](const std::string& directory) { return !check_directory(directory); });
  return candidates;
}

std::string rendezvous_path(const std::string& directory, const Nonce128& token) {
  return directory + "/" + to_hex(token);
}

Result<std::string> find_rendezvous(const Nonce128& token) {
  std::vector<std::string> directories;
  if (runtime_directory_is_asked_for()) {
    TENDON_TRY(directory, runtime_directory());
    directories.push_back(std::move(directory));
  }
  directories.push_back(user_directory());
  directories.push_back(system_directory());
  std::string searched;
  std::string refused;
  for (const std::string& directory : directories) {
    searched += (searched.empty() ? "" : ", ") + directory;
    if (const auto checked = check_directory(directory); !checked) {
      if (checked.error().system_errno != ENOENT) refused += "; " + checked.error().detail;
      continue;
    }
    std::string path = rendezvous_path(directory, token);
    struct stat facts {};
    if (lstat(path.c_str(), &facts) == 0 && is_our_socket(facts)) return path;
  }
  return Error{ErrorCode::not_found, kWhere,
               "the peer has no rendezvous socket of uid " + std::to_string(user_id()) +
                   " that is visible here; searched " + searched + refused};
}

}  // namespace tendon::v0::detail
