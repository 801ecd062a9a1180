// SPDX-License-Identifier: Apache-2.0
#include "core/failpoint.hpp"

#ifdef TENDON_FAILPOINTS
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>

#include "core/process_wide.hpp"
#endif

namespace tendon::v0::detail {

#ifdef TENDON_FAILPOINTS
namespace {

enum class Act { kill, stop, error };
struct Armed {
  std::string name;
  Act act = Act::error;
  std::atomic<int> passages_left{1};
};

// Reads "name=kill@3,other=error". An unreadable word ends the process, because a test that arms
// nothing would pass falsely.
std::unique_ptr<std::deque<Armed>> read_environment() {
  auto read = std::make_unique<std::deque<Armed>>();
  std::deque<Armed>& armed = *read;
  const char* text = std::getenv("TENDON_FAILPOINTS");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size() == rest.size() ? rest.size() : item.size() + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) std::abort();
    Armed& entry = armed.emplace_back();
    entry.name = item.substr(0, equals);
    std::string_view act = item.substr(equals + 1);
    if (const auto at = act.find('@'); at != std::string_view::npos) {
      int count = 0;
      const char* end = act.data() + act.size();
      if (std::from_chars(act.data() + at + 1, end, count).ptr != end || count < 1) std::abort();
      entry.passages_left = count;
      act = act.substr(0, at);
    }
    if (act == "kill")
      entry.act = Act::kill;
    else if (act == "stop")
      entry.act = Act::stop;
    else if (act == "error")
      entry.act = Act::error;
    else
      std::abort();
  }
  return read;
}

// A test that waits for a death must see that it was this one.
void report(const Armed& passed) noexcept {
  const char* const path = std::getenv("TENDON_FAILPOINT_REPORT");
  if (path == nullptr) return;
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const std::string line = passed.name + "\n";
  if (fd < 0 || write(fd, line.data(), line.size()) < 0) std::abort();
  close(fd);
}

}  // namespace

bool failpoint_hit(std::string_view name) noexcept {
  static constinit MadeOnce<std::deque<Armed>> made;
  std::deque<Armed>& armed = made.get(read_environment);
  bool fails = false;
  for (Armed& entry : armed) {
    if (entry.name != name || entry.passages_left.fetch_sub(1) != 1) continue;
    report(entry);
    if (entry.act == Act::kill) kill(getpid(), SIGKILL);
    if (entry.act == Act::stop) raise(SIGSTOP);
    if (entry.act == Act::error) fails = true;
  }
  return fails;
}

bool failpoints_built() noexcept { return true; }
#else
bool failpoints_built() noexcept { return false; }
#endif

}  // namespace tendon::v0::detail
