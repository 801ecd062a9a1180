// SPDX-License-Identifier: Apache-2.0
#include "cli/benchmark.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/memory/storage.hpp>
#include <utility>

#include "cli/security_flags.hpp"
#include "core/failpoint.hpp"
#include "runtime/settings.hpp"

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.bench";
/// The longest time that a peer may take to start and connect.
constexpr std::chrono::seconds kStartLimit{30};

/// Adds the options from which the second process makes the same Security.
void add_security(Value::Map& parameters, const SecurityOptions& options) {
  parameters.emplace_back("profile", to_string(options.profile));
  parameters.emplace_back("key", options.files.key);
  parameters.emplace_back("cert", options.files.cert);
  parameters.emplace_back("cert_key", options.files.cert_key);
  parameters.emplace_back("ca", options.files.ca);
  parameters.emplace_back("expected", options.peer);
}
Result<Security> security_of(const Value& parameters) {
  if (parameters.find("profile") == nullptr) return Security{};
  const auto text = [&](std::string_view key) { return parameter(parameters, key).as_string(); };
  SecurityOptions options;
  options.profile = choice<Profile>(parameters, "profile");
  options.files = {
      .key = text("key"), .cert = text("cert"), .cert_key = text("cert_key"), .ca = text("ca")};
  options.peer = text("expected");
  return load_security(options);
}

/// The second process has said on stderr why it ended; its exit code is that of the error.
Error ended_early(PeerProcess& process) {
  const pid_t pid = process.pid();
  const int exit_code = process.wait();
  const auto table = error_table();
  const auto row = std::ranges::find(table, exit_code, &ErrorInfo::exit_code);
  return Error{
      row == table.end() ? ErrorCode::internal : row->code, kWhere,
      fmt::format("the second process (pid {}) ended with exit code {} and had not connected", pid,
                  exit_code)};
}

Result<Pipe> accept_peer(Listener& listener, PeerProcess& process) {
  constexpr std::chrono::milliseconds kLook{100};
  const Deadline deadline = kStartLimit;
  for (;;) {
    const bool has_ended = process.has_ended();
    auto pipe = listener.accept(earlier(deadline, Deadline(kLook)));
    if (pipe) return pipe;
    if (pipe.error().code == ErrorCode::timeout && !deadline.has_passed()) {
      if (has_ended) return ended_early(process);
      continue;
    }
    return Error{pipe.error().code, kWhere,
                 fmt::format("the second process (pid {}) did not connect: {}", process.pid(),
                             pipe.error().detail)};
  }
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Value::Map machine_card() {
  utsname system{};
  uname(&system);
  std::string load;
  std::ifstream("/proc/loadavg") >> load;
  return {{"cpu", cpu_model()},
          {"cores", detail::effective_cpu_count()},
          {"memory_limit_bytes", detail::memory_limit_bytes()},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"load_average", load},
          {"tendon", kVersion},
          {"failpoints", detail::failpoints_built()}};
}

Value::Map benchmark_document(std::string_view benchmark, Value::List results) {
  return {{"benchmark", benchmark}, {"machine", machine_card()}, {"results", std::move(results)}};
}

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

Value::Map latency_row(std::string_view path, std::string_view mode,
                       const std::vector<double>& sorted_us) {
  return {{"path", std::string(path)},
          {"mode", std::string(mode)},
          {"size_bytes", 0},
          {"latency_us_p50", percentile(sorted_us, 50)},
          {"latency_us_p99", percentile(sorted_us, 99)},
          {"latency_us_max", percentile(sorted_us, 100)},
          {"bandwidth_gb_per_s", nullptr},
          {"ratio", Value::Map()},
          {"rounds", sorted_us.size()}};
}

Result<double> memcpy_us(std::uint64_t size_bytes) {
  using Clock = std::chrono::steady_clock;
  TENDON_TRY(source, Storage::allocate(size_bytes));
  TENDON_TRY(destination, Storage::allocate(size_bytes));
  std::memset(source.data(), 1, size_bytes);
  std::memset(destination.data(), 2, size_bytes);
  // Small copies are repeated until the cost of reading the clock does not show.
  constexpr std::uint64_t kSampleBytes = 256 << 10;
  const std::uint64_t copies =
      std::max<std::uint64_t>(kSampleBytes / std::max<std::uint64_t>(size_bytes, 1), 1);
  const std::uint64_t rounds =
      std::clamp<std::uint64_t>((1ull << 30) / (size_bytes * copies + 1), 7, 101);
  std::vector<double> samples;
  for (std::uint64_t round = 0; round < rounds + 2; ++round) {
    const auto start = Clock::now();
    for (std::uint64_t copy = 0; copy < copies; ++copy) {
      std::memcpy(destination.data(), source.data(), size_bytes);
      // The compiler must believe that something reads the copy, or it drops it.
      asm volatile("" : : "r"(destination.data()) : "memory");
    }
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (round >= 2) samples.push_back(elapsed.count() / static_cast<double>(copies));
  }
  std::ranges::sort(samples);
  return percentile(samples, 50);
}

const Value& parameter(const Value& parameters, std::string_view key) {
  const Value* found = parameters.find(key);
  if (found == nullptr) {
    throw Exception(
        Error{ErrorCode::invalid_argument, kWhere, fmt::format("parameter '{}' is missing", key)});
  }
  return *found;
}

Result<ParentLink> connect_to_parent(const Value& parameters) {
  const auto transport = choice<Transport>(parameters, "path");
  const auto policy = choice<WaitPolicy>(parameters, "policy");
  const Value* name = parameters.find("name");
  // The lease of a peer that is stopped on purpose must not end it.
  TENDON_TRY(context, Context::create({.name = name == nullptr ? "bench peer" : name->as_string(),
                                       .wait_policy = policy,
                                       .transport = transport,
                                       .streams = static_cast<std::uint32_t>(
                                           parameter(parameters, "streams").as_u64()),
                                       .lease = std::chrono::minutes(5)}));
  TENDON_TRY(security, security_of(parameters));
  TENDON_TRY(pipe, Pipe::connect(context, parameter(parameters, "address").as_string(), kStartLimit,
                                 {.security = std::move(security)}));
  return ParentLink{std::move(context), std::move(pipe)};
}

Result<PeerLink> start_peer(std::string_view role, Value::Map parameters, ContextOptions options,
                            const PeerPlace& place) {
  TENDON_TRY(security, place.security ? load_security(*place.security) : Security{});
  security.peer.clear();  // the second process dials that name
  parameters.emplace_back("path", to_string(options.transport));
  parameters.emplace_back("policy", to_string(options.wait_policy));
  parameters.emplace_back("streams", options.streams);
  TENDON_TRY(context, Context::create(std::move(options)));
  TENDON_TRY(listener,
             Listener::bind(context, place.host + ":0", {.security = std::move(security)}));
  parameters.emplace_back("address", listener.address());
  if (place.security) add_security(parameters, *place.security);
  TENDON_TRY(process, PeerProcess::start(role, std::move(parameters), place.by));
  TENDON_TRY(pipe, accept_peer(listener, process));
  return PeerLink{std::move(context), std::move(listener), std::move(process), std::move(pipe)};
}

}  // namespace tendon::cli
