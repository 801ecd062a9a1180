// SPDX-License-Identifier: Apache-2.0
//
// The common part of every peer program: the command line, touched buffers, percentiles and the
// JSON document that all of Tendon's benchmarks print on stdout. Needs no Tendon library.
#pragma once

#include <sched.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace peer {

using Clock = std::chrono::steady_clock;

[[noreturn]] inline void fail(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

/// Ends the process with the name of the failed system call and the text of errno.
[[noreturn]] inline void fail_errno(const std::string& call) {
  fail(call + ": " + std::strerror(errno));
}

inline double elapsed_us(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// ---------------------------------------------------------------------------------------------
// Command line

struct Options {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  std::size_t factor = 2;
  std::size_t iterations = 0;  // 0: chosen per size, see iterations_for()
  std::size_t warm_up = 0;     // 0: a tenth of the iterations, and least_warm_up of them
  std::size_t least_warm_up = 3;
  std::size_t traffic_bytes = std::size_t{2} << 30;  // of all iterations of a size
  std::map<std::string, std::string, std::less<>> extra = {};

  [[nodiscard]] std::vector<std::size_t> sizes_bytes() const {
    std::vector<std::size_t> sizes;
    for (std::size_t size = begin_bytes; size <= end_bytes; size *= factor) {
      sizes.push_back(size);
      if (size > end_bytes / factor) break;
    }
    return sizes;
  }

  /// Without -n: rounds for about this traffic, within [20, 20000].
  [[nodiscard]] std::size_t iterations_for(std::size_t size_bytes) const {
    if (iterations != 0) return iterations;
    return std::clamp<std::size_t>(traffic_bytes / size_bytes, 20, 20000);
  }

  [[nodiscard]] std::size_t warm_up_for(std::size_t size_bytes) const {
    return warm_up != 0 ? warm_up : std::max(iterations_for(size_bytes) / 10, least_warm_up);
  }

  [[nodiscard]] std::string extra_or(std::string_view name, std::string_view fallback) const {
    const auto found = extra.find(name);
    return found == extra.end() ? std::string(fallback) : found->second;
  }
};

/// Parses a count or a size: decimal digits with an optional K, M or G (powers of 1024).
inline std::size_t parse_size(std::string_view flag, std::string_view text) {
  const std::string legal = std::string(flag) + ": '" + std::string(text) +
                            "' is not a number in 1..2^40 with an optional K, M or G";
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (suffix == "K" || suffix == "k") {
    shift = 10;
  } else if (suffix == "M" || suffix == "m") {
    shift = 20;
  } else if (suffix == "G" || suffix == "g") {
    shift = 30;
  } else if (!suffix.empty()) {
    fail(legal);
  }
  constexpr std::size_t kMax = std::size_t{1} << 40;
  if (error != std::errc{} || value == 0 || value > (kMax >> shift)) fail(legal);
  return value << shift;
}

/// Reads -b -e -f -n -w and the `extra` long flags (each takes one value).
inline Options parse_options(int argc, char** argv, Options defaults,
                             std::initializer_list<std::string_view> extra = {}) {
  Options options = std::move(defaults);
  std::size_t end_bytes = 0;
  const std::map<std::string_view, std::size_t*> sizes{{"-b", &options.begin_bytes},
                                                       {"-e", &end_bytes},
                                                       {"-f", &options.factor},
                                                       {"-n", &options.iterations},
                                                       {"-w", &options.warm_up}};
  const auto usage = [&](FILE* out) {
    std::fprintf(out,
                 "usage: %s [-b begin_bytes] [-e end_bytes] [-f factor] [-n iterations] "
                 "[-w warm_up]",
                 argv[0]);
    for (const std::string_view flag : extra) std::fprintf(out, " [%s value]", flag.data());
    std::fprintf(out, "\nsizes take K, M, G; one JSON document is printed on stdout\n");
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "-h" || flag == "--help") {
      usage(stderr);
      std::exit(0);
    }
    if (i + 1 == argc) {
      usage(stderr);
      fail(std::string(flag) + ": unknown flag, or its value is missing");
    }
    const std::string_view value = argv[++i];
    if (const auto size = sizes.find(flag); size != sizes.end()) {
      *size->second = parse_size(flag, value);
    } else if (std::find(extra.begin(), extra.end(), flag) != extra.end()) {
      options.extra[std::string(flag)] = value;
    } else {
      usage(stderr);
      fail(std::string(flag) + ": unknown flag");
    }
  }
  options.end_bytes = end_bytes != 0 ? end_bytes : std::max(options.end_bytes, options.begin_bytes);
  if (options.end_bytes < options.begin_bytes) fail("-e: the last size is smaller than the first");
  if (options.factor < 2) fail("-f: the factor must be at least 2");
  return options;
}

// ---------------------------------------------------------------------------------------------
// Memory and processes

/// Page-aligned bytes whose pages are all written once, like a user's tensor before it is sent.
class TouchedBuffer {
 public:
  explicit TouchedBuffer(std::size_t size_bytes, std::uint8_t value = 1)
      : bytes_(static_cast<std::byte*>(::operator new(size_bytes, kAlignment))),
        size_bytes_(size_bytes) {
    std::memset(bytes_, value, size_bytes);
  }
  ~TouchedBuffer() { ::operator delete(bytes_, kAlignment); }
  TouchedBuffer(const TouchedBuffer&) = delete;
  TouchedBuffer& operator=(const TouchedBuffer&) = delete;

  [[nodiscard]] std::byte* data() { return bytes_; }
  [[nodiscard]] std::span<std::byte> span() { return {bytes_, size_bytes_}; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  std::byte* bytes_;
  std::size_t size_bytes_;
};

inline std::size_t core_count() {
  return std::max<std::size_t>(std::thread::hardware_concurrency(), 1);
}

/// Pins the calling process to the `index`-th core it may use; does nothing with one core.
inline void pin_to_core(std::size_t index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail_errno("sched_getaffinity");
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) fail_errno("sched_setaffinity");
    return;
  }
}

/// Runs `child_main` in a forked process that dies with its parent; returns its pid.
template <typename ChildMain>
pid_t spawn(ChildMain&& child_main) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail_errno("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    child_main();
    _exit(0);
  }
  return child;
}

inline void end_by_kill(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

inline void reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail_errno("waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("the second process failed");
}

/// A system pipe for whole words and short texts, such as the address of a listener.
class Words {
 public:
  Words() {
    if (pipe(ends_.data()) != 0) fail_errno("pipe");
  }
  void write(std::uint64_t word) const { put(&word, sizeof word); }
  [[nodiscard]] std::uint64_t read() const {
    std::uint64_t word = 0;
    take(&word, sizeof word);
    return word;
  }
  void write_text(std::string_view text) const {
    std::array<char, 64> bytes{};
    text.copy(bytes.data(), bytes.size() - 1);
    put(bytes.data(), bytes.size());
  }
  [[nodiscard]] std::string read_text() const {
    std::array<char, 64> bytes{};
    take(bytes.data(), bytes.size());
    return bytes.data();
  }

 private:
  void put(const void* data, std::size_t size) const {
    if (::write(ends_[1], data, size) != static_cast<ssize_t>(size)) fail_errno("write");
  }
  void take(void* data, std::size_t size) const {
    if (::read(ends_[0], data, size) != static_cast<ssize_t>(size)) fail_errno("read");
  }
  std::array<int, 2> ends_{};
};

/// Returns the time of each round, from the end of the round before it, without the warm-up.
template <typename Round>
std::vector<double> time_rounds(std::size_t warm_up, std::size_t rounds, Round&& round) {
  std::vector<double> samples_us;
  samples_us.reserve(rounds);
  auto previous = Clock::now();
  for (std::size_t i = 0; i < warm_up + rounds; ++i) {
    round();
    const auto now = Clock::now();
    if (i >= warm_up) samples_us.push_back(elapsed_us(previous, now));
    previous = now;
  }
  return samples_us;
}

// ---------------------------------------------------------------------------------------------
// Results

struct Result {
  std::string path;
  std::string mode;
  std::size_t size_bytes;
  double latency_us_p50;
  double latency_us_p99;
  std::map<std::string, double> more = {};
  std::optional<double> rate_gb_per_s = {};  // if the latency does not imply it; 0: none
};

/// Nearest-rank percentiles of `samples_us` (sorted in place).
inline Result summarize(std::string path, std::string mode, std::size_t size_bytes,
                        std::vector<double>& samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  const auto at = [&](double quantile) {
    const auto rank = std::ceil(quantile * static_cast<double>(samples_us.size()));
    return samples_us[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  return {std::move(path), std::move(mode), size_bytes, at(0.5), at(0.99)};
}

/// The same for a ping-pong: one way is half a round.
inline Result summarize_ping_pong(std::string path, std::string mode, std::size_t size_bytes,
                                  std::vector<double> rounds_us) {
  for (double& sample : rounds_us) sample /= 2;
  return summarize(std::move(path), std::move(mode), size_bytes, rounds_us);
}

inline std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

/// Prints the shape that all benchmarks of Tendon share; a ratio needs two programs, so `ratio` is
/// empty.
inline void print_json(std::string_view benchmark, std::span<const Result> results) {
  utsname system{};
  uname(&system);
  std::printf("{\"benchmark\": \"%.*s\", \"machine\": {\"cpu\": \"%s\", \"cores\": %zu, ",
              static_cast<int>(benchmark.size()), benchmark.data(), cpu_model().c_str(),
              core_count());
  std::printf("\"kernel\": \"%s %s\"}, \"results\": [", system.sysname, system.release);
  const char* separator = "\n";
  for (const Result& result : results) {
    const double gb_per_s = result.rate_gb_per_s.value_or(static_cast<double>(result.size_bytes) /
                                                          result.latency_us_p50 / 1e3);
    std::printf("%s  {\"path\": \"%s\", \"mode\": \"%s\", \"size_bytes\": %zu, ", separator,
                result.path.c_str(), result.mode.c_str(), result.size_bytes);
    std::printf("\"latency_us_p50\": %.6g, \"latency_us_p99\": %.6g, ", result.latency_us_p50,
                result.latency_us_p99);
    for (const auto& [name, value] : result.more)
      std::printf("\"%s\": %.6g, ", name.c_str(), value);
    if (gb_per_s > 0) {
      std::printf("\"bandwidth_gb_per_s\": %.6g, \"ratio\": {}}", gb_per_s);
    } else {
      std::printf("\"bandwidth_gb_per_s\": null, \"ratio\": {}}");
    }
    separator = ",\n";
  }
  std::printf("\n]}\n");
}

}  // namespace peer
