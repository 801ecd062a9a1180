// SPDX-License-Identifier: Apache-2.0
#include "session/holder.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

namespace fs = std::filesystem;

std::string first_line_of(const std::string& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

/// Inodes of the sockets of this network namespace that listen at the port, on any address.
std::vector<std::string> listeners_at(std::uint16_t port) {
  constexpr std::string_view kListens = "0A";
  std::vector<std::string> inodes;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream rows(table);
    std::string line;
    while (std::getline(rows, line)) {
      std::istringstream row(line);
      std::array<std::string, 10> fields;  // the inode is the tenth
      for (std::string& field : fields) row >> field;
      const std::size_t colon = fields[1].rfind(':');
      if (colon == std::string::npos || fields[3] != kListens) continue;
      unsigned found = 0;
      const std::string_view digits = std::string_view(fields[1]).substr(colon + 1);
      (void)std::from_chars(digits.data(), digits.data() + digits.size(), found, 16);
      if (found == port) inodes.push_back(fields[9]);
    }
  }
  return inodes;
}

/// A process of this user that has the socket open; root sees all processes.
std::optional<pid_t> process_with(const std::vector<std::string>& inodes) {
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string name = process.path().filename();
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc() || end != name.data() + name.size()) continue;
    std::error_code unreadable;
    for (fs::directory_iterator fd(process.path() / "fd", unreadable), last; fd != last;
         fd.increment(unreadable)) {
      std::error_code gone;
      const std::string target = fs::read_symlink(fd->path(), gone);
      const bool holds = std::ranges::any_of(
          inodes, [&](const std::string& inode) { return target == "socket:[" + inode + ']'; });
      if (holds) return pid;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<pid_t> listener_at_port(std::uint16_t port) {
  return process_with(listeners_at(port));
}

std::optional<pid_t> process_behind(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  if (credentials.pid <= 0) return std::nullopt;  // it is in another pid namespace
  return credentials.pid;
}

std::string process_text(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string text = "pid " + std::to_string(pid);
  const std::string name = first_line_of(folder + "/comm");
  if (!name.empty()) text += " (" + cleaned(name) + ')';
  // The name of a program may have any character; its state follows the last bracket.
  const std::string stat = first_line_of(folder + "/stat");
  const std::size_t bracket = stat.rfind(") ");
  if (bracket == std::string::npos || bracket + 2 >= stat.size()) return text;
  const char state = stat[bracket + 2];
  if (state == 'T' || state == 't') text += ", which is stopped";
  return text;
}

}  // namespace tendon::v0::detail
