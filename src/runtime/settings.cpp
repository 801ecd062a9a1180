// SPDX-License-Identifier: Apache-2.0
#include "runtime/settings.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tendon/session/limits.hpp>

#include "core/environment.hpp"
#include "runtime/control_group.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

// Reads the number in the first word of a file; `fallback` for "max", a missing file or other text.
std::uint64_t first_number(const std::string& path, std::uint64_t fallback) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : fallback;
}

constexpr std::uint64_t kSmallestCapBytes = 1ull << 20;

}  // namespace

unsigned quota_cpu_count() {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  auto count = static_cast<unsigned>(std::max(1L, online));
  for (const std::string& path : control_group_files({.unified = "cpu.max"})) {
    std::ifstream quota_file(path);
    double quota = 0;
    double period = 0;
    if (quota_file >> quota >> period && period > 0)
      count = std::min(count, static_cast<unsigned>(std::max(1.0, quota / period)));
  }
  return count;
}

unsigned effective_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  unsigned count = quota_cpu_count();
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    count = std::min(count, static_cast<unsigned>(CPU_COUNT(&set)));
  return std::max(1u, count);
}

std::uint64_t memory_limit_bytes() {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t limit = pages * page_bytes;
  for (const std::string& path : control_group_files(
           {.unified = "memory.max", .controller = "memory", .legacy = "memory.limit_in_bytes"}))
    limit = std::min(limit, first_number(path, limit));
  return limit;
}

std::uint64_t default_cap_bytes() {
  return std::max(kSmallestCapBytes, std::min<std::uint64_t>(1ull << 30, memory_limit_bytes() / 4));
}

Result<ContextOptions> resolve_options(ContextOptions options) {
  const auto wrong = [](std::string detail) {
    return Error{ErrorCode::invalid_argument, "context.create", std::move(detail)};
  };
  if (options.name.empty()) {
    if (const char* name = std::getenv("TENDON_NAME")) options.name = name;
  }
  if (options.name.size() > kMaxIdentityTextBytes) {
    return wrong("ContextOptions::name has " + std::to_string(options.name.size()) +
                 " bytes; at most " + std::to_string(kMaxIdentityTextBytes) + " are legal");
  }
  if (!is_utf8(options.name))
    return wrong("ContextOptions::name is " + quote_text(options.name) + "; it must be UTF-8");
  if (const auto text = environment_variable("TENDON_TRANSPORT");
      !text.empty() && options.transport == Transport::automatic) {
    const auto transport = parse_word<Transport>(text);
    if (!transport)
      return wrong("TENDON_TRANSPORT is '" + std::string(text) + "'; legal are " +
                   legal_words<Transport>());
    options.transport = *transport;
  }
  if (options.link_cap_bytes == 0) options.link_cap_bytes = default_cap_bytes();
  if (options.pool_cap_bytes == 0) options.pool_cap_bytes = default_cap_bytes();
  if (options.publish_bytes == 0) options.publish_bytes = default_cap_bytes();
  if (options.device_cap_bytes == 0) options.device_cap_bytes = 1ull << 30;
  constexpr std::uint64_t kLargestCapBytes = 1ull << 46;
  for (const std::uint64_t cap : {options.link_cap_bytes, options.pool_cap_bytes,
                                  options.publish_bytes, options.device_cap_bytes}) {
    if (cap < kSmallestCapBytes || cap > kLargestCapBytes) {
      return wrong("a cap of " + std::to_string(cap) + " bytes; legal are " +
                   std::to_string(kSmallestCapBytes) + " to " + std::to_string(kLargestCapBytes) +
                   ", or 0 for the default");
    }
  }
  if (options.streams < 1 || options.streams > kMaxStreamsPerLink) {
    return wrong("ContextOptions::streams is " + std::to_string(options.streams) +
                 "; legal are 1 to " + std::to_string(kMaxStreamsPerLink));
  }
  if (options.lease < std::chrono::milliseconds(500)) {
    return wrong("ContextOptions::lease is " + std::to_string(options.lease.count()) +
                 " ms; at least 500 ms are legal");
  }
  if (options.linger < std::chrono::milliseconds(0)) {
    return wrong("ContextOptions::linger is " + std::to_string(options.linger.count()) +
                 " ms; it must not be negative");
  }
  if (options.protocol_minor > kProtocolMinor) {
    return wrong("ContextOptions::protocol_minor is " + std::to_string(options.protocol_minor) +
                 "; this build speaks " + std::to_string(kProtocolMajor) + "." +
                 std::to_string(kProtocolMinMinor) + " to " + std::to_string(kProtocolMajor) + "." +
                 std::to_string(kProtocolMinor));
  }
  return options;
}

}  // namespace tendon::v0::detail
