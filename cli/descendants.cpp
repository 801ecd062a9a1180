// SPDX-License-Identifier: Apache-2.0
#include "cli/descendants.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/fd.hpp"

namespace tendon::cli {
namespace {

/// Reads whether the process `pid` is a child of this one.
std::optional<ChildProcess> as_child(pid_t pid, const std::string& stat_path) {
  const detail::OwnedFd file(open(stat_path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> buffer{};
  const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : 0;
  if (size <= 0) return std::nullopt;
  // "pid (name) state parent ...": the name is any text of at most 64 bytes, ')' included.
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string_view::npos || text.size() < name_end + 5) return std::nullopt;
  const char state = text[name_end + 2];
  text.remove_prefix(name_end + 4);
  pid_t parent = 0;
  std::from_chars(text.data(), text.data() + text.size(), parent);
  if (parent != getpid()) return std::nullopt;
  return ChildProcess{
      pid, state == 'Z' || state == 'X' ? ChildProcess::State::ended : ChildProcess::State::alive};
}

}  // namespace

Result<void> adopt_orphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return system_error("cli.descendants", "prctl(PR_SET_CHILD_SUBREAPER)", errno);
  return {};
}

std::vector<ChildProcess> child_processes() {
  std::vector<ChildProcess> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return found;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const auto child = as_child(pid, "/proc/" + std::string(name) + "/stat"))
      found.push_back(*child);
  }
  return found;
}

void end_descendants() {
  while (true) {
    int killed_count = 0;
    for (const ChildProcess& child : child_processes())
      if (kill(child.pid, SIGKILL) == 0) ++killed_count;
    if (killed_count == 0) return;
    // Children of the killed processes become children of this process, which the next round kills.
    for (; killed_count > 0; --killed_count)
      while (waitpid(-1, nullptr, 0) < 0)
        if (errno != EINTR) return;
  }
}

}  // namespace tendon::cli
