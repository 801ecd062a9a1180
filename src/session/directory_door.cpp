// SPDX-License-Identifier: Apache-2.0
#include "session/directory_door.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.directory_door";

}  // namespace

Result<DirectoryDoor> DirectoryDoor::open(const std::string& directory) {
  TENDON_TRY(fd, open_directory(directory));
  std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  if (access(path.c_str(), X_OK) != 0) path = directory;
  return DirectoryDoor(std::move(fd), std::move(path), directory);
}

// The descriptor keeps its number, so the path stays the same.
Result<void> DirectoryDoor::lead(const OwnedFd& target) {
  if (dup3(target.get(), fd_.get(), O_CLOEXEC) >= 0) return {};
  return system_error(kWhere, "dup3", errno);
}

Result<void> DirectoryDoor::lead_to(const std::string& directory) {
  if (path_ == first_ && directory != first_) {
    return Error{ErrorCode::not_supported, kWhere,
                 "without /proc what was told '" + first_ + "' cannot follow to '" + directory +
                     "': mount /proc, or begin this process again"};
  }
  TENDON_TRY(target, open_directory(directory));
  return lead(target);
}

// Leads to a file, which is no directory.
Result<void> DirectoryDoor::lead_nowhere() {
  const OwnedFd target(::open("/dev/null", O_PATH | O_CLOEXEC));
  if (!target) return system_error(kWhere, "open('/dev/null')", errno);
  return lead(target);
}

}  // namespace tendon::v0::detail
