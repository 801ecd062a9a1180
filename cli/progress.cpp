// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cli/output.hpp"
#include "core/text.hpp"

namespace tendon::cli {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return std::max(elapsed.count(), 1e-9);
}

Progress::Progress(ProgressStyle style, std::string_view label, std::uint64_t total_bytes)
    : style_(style),
      bar_(style == ProgressStyle::automatic && isatty(STDERR_FILENO) == 1),
      label_(detail::cleaned(label)),
      total_bytes_(total_bytes) {}

Progress::~Progress() {
  if (drawn_) (void)std::fputs("\r\033[K", stderr);
}

void Progress::update(std::uint64_t done_bytes) {
  if (style_ == ProgressStyle::lines) {
    say(fmt::format("progress {} {}", done_bytes, total_bytes_));
    return;
  }
  if (!bar_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  draw(done_bytes, now);
}

void Progress::draw(std::uint64_t done_bytes, Clock::time_point now) {
  const double elapsed = std::max(std::chrono::duration<double>(now - start_).count(), 1e-9);
  const auto done = static_cast<double>(done_bytes);
  const auto total = static_cast<double>(std::max<std::uint64_t>(total_bytes_, 1));
  const double rate = done / elapsed;
  const std::string left = rate > 0 ? format_seconds((total - done) / rate) : "?";
  const std::string figures =
      fmt::format(" {:3.0f}%  {} of {}  {}  {} left", 100 * done / total, format_bytes(done),
                  format_bytes(total), format_rate(rate), left);
  // A line that wraps cannot be overwritten: the bar takes the rest of the line, and the label
  // shrinks first.
  const int room = terminal_columns() - 1 - static_cast<int>(figures.size());
  const int label_room = std::clamp(room - 14, 0, static_cast<int>(label_.size()));
  const std::string label = detail::cleaned(label_, static_cast<std::size_t>(label_room));
  const int bar_room = std::clamp(room - label_room - 3, 0, 30);
  const int filled = static_cast<int>(bar_room * done / total);
  const std::string line = fmt::format("\r{} [{:#<{}}{:-<{}}]{}\033[K", label, "", filled, "",
                                       bar_room - filled, figures);
  (void)std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tendon::cli
