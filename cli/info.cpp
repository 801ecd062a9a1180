// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/group/rendezvous.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "cli/embedded.hpp"
#include "cli/info_copies.hpp"
#include "cli/info_gpus.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/environment.hpp"
#include "core/failpoint.hpp"
#include "core/fd.hpp"
#include "fabric/discovery/node_environment.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "runtime/settings.hpp"
#include "session/machine.hpp"

namespace tendon::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  return "address";
#elif defined(__SANITIZE_THREAD__)
  return "thread";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "address";
#elif __has_feature(thread_sanitizer)
  return "thread";
#endif
#endif
  return "none";
}

bool optimised() {
#ifdef __OPTIMIZE__
  return true;
#else
  return false;
#endif
}

/// The needs of the fast path from the kernel. Each is tried, not guessed from a version.
struct ShmFacts {
  bool sealed_memory = false;  ///< a memfd with seals
  bool prefault = false;       ///< MADV_POPULATE_WRITE, Linux 5.14
  bool death_notice = false;   ///< pidfd, Linux 5.3
};

ShmFacts probe_shm() {
  ShmFacts facts;
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const detail::OwnedFd memory(memfd_create("tendon-info", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  facts.sealed_memory = memory && ftruncate(memory.get(), static_cast<off_t>(page_bytes)) == 0;
  if (facts.sealed_memory) {
    void* mapped = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mapped != MAP_FAILED) {
      constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, missing in older headers
      facts.prefault = madvise(mapped, page_bytes, kPopulateWrite) == 0;
      munmap(mapped, page_bytes);
    }
  }
  const detail::OwnedFd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  facts.death_notice = static_cast<bool>(self);
  return facts;
}

Value::Map build_facts() {
  const auto zenoh = detail::zenoh_version();
  return {{"compiler", compiler()},
          {"optimised", optimised()},
          {"failpoints", detail::failpoints_built()},
          {"zenoh", zenoh ? *zenoh : zenoh.error().detail},
          {"control", TENDON_CONTROL_WHY},
          {"sanitizer", sanitizer()}};
}

Value::Map path_facts() {
  const ShmFacts facts = probe_shm();
  return {{"shm", Value::Map{{"available", facts.sealed_memory && facts.death_notice},
                             {"sealed_memory", facts.sealed_memory},
                             {"death_notice", facts.death_notice},
                             {"prefault", facts.prefault}}},
          {"tcp", Value::Map{{"available", true}}}};
}

Value::Map machine_facts() {
  utsname system{};
  uname(&system);
  return {{"host", detail::host_name()},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"architecture", system.machine},
          {"cpu_count", detail::effective_cpu_count()},
          {"memory_limit_bytes", detail::memory_limit_bytes()},
          {"page_bytes", sysconf(_SC_PAGESIZE)},
          {"uid", detail::user_id()}};
}

std::string text_of(const char* variable) {
  return std::string(detail::environment_variable(variable));
}

/// One setting, and its source: the environment variable, or "default".
Value::Map setting(Value value, const char* variable = nullptr) {
  if (variable == nullptr) return {{"value", std::move(value)}, {"source", "default"}};
  return {{"value", std::move(value)},
          {"source", text_of(variable).empty() ? "default" : "environment"},
          {"variable", variable}};
}

/// A setting whose value is the text of its variable.
Value::Map said(const char* variable) { return setting(text_of(variable), variable); }

/// The meeting place of the members of a group that name no rendezvous: the launcher's variables,
/// if TENDON_RENDEZVOUS is not set.
Value::Map rendezvous_setting() {
  const char* variable = "TENDON_RENDEZVOUS";
  std::string address = text_of(variable);
  if (address.empty()) {
    const Rendezvous launched = Rendezvous::from_environment();
    address = launched.address();
    for (const char* const launcher : {"SLURM_JOB_ID", "PMIX_NAMESPACE", "MASTER_ADDR"})
      if (!address.empty() && !text_of(launcher).empty()) variable = launcher;
  }
  return setting(std::move(address), variable);
}

/// check_docs.py verifies that each variable of the library is listed here.
Result<Value::Map> effective_settings() {
  TENDON_TRY(options, detail::resolve_options({}));
  const LogLevel level = parse_word<LogLevel>(text_of("TENDON_LOG")).value_or(LogLevel::warn);
  const auto directory = detail::runtime_directory();
  Value::Map settings = {
      {"name", setting(options.name, "TENDON_NAME")},
      {"transport", setting(to_string(options.transport), "TENDON_TRANSPORT")},
      {"log", setting(to_string(level), "TENDON_LOG")},
      {"runtime_directory",
       setting(directory ? *directory : directory.error().detail, "TENDON_RUNTIME_DIR")},
      {"progress", setting(to_string(options.progress))},
      {"wait_policy", setting(to_string(options.wait_policy))},
      {"link_cap_bytes", setting(options.link_cap_bytes)},
      {"pool_cap_bytes", setting(options.pool_cap_bytes)},
      {"publish_bytes", setting(options.publish_bytes)},
      {"device_cap_bytes", setting(options.device_cap_bytes)},
      {"device_path", setting(to_string(options.device_path))},
      {"streams", setting(options.streams)},
      {"linger_ms", setting(options.linger.count())},
      {"lease_ms", setting(options.lease.count())},
      {"protocol_minor", setting(options.protocol_minor)},
      {"rendezvous", rendezvous_setting()},
      {"listen", said("TENDON_LISTEN")},
      {"collectives", said("TENDON_COLLECTIVES")},
      {"domain", setting(detail::domain_or_default({}), "TENDON_DOMAIN")},
      {"key", said("TENDON_KEY")},
      {"cert", said("TENDON_CERT")},
      {"cert_key", said("TENDON_CERT_KEY")},
      {"ca", said("TENDON_CA")},
      {"cuda", said("TENDON_CUDA")},
      {"cuda_library", said("TENDON_CUDA_LIBRARY")},
      {"explain_segv", setting(text_of("TENDON_EXPLAIN_SEGV") != "off", "TENDON_EXPLAIN_SEGV")},
  };
  if (detail::zenoh_version()) {
    settings.emplace_back("routers", said("TENDON_ROUTER"));
    settings.emplace_back("zenoh_config", said("ZENOH_CONFIG_OVERRIDE"));
  }
  if (detail::failpoints_built()) {
    settings.emplace_back("failpoints", said("TENDON_FAILPOINTS"));
    settings.emplace_back("failpoint_report", said("TENDON_FAILPOINT_REPORT"));
  }
  return settings;
}

Value::Map limit_values() {
  Value::Map map;
  for (const Limit& limit : limits()) map.emplace_back(limit.name, limit.value);
  return map;
}

std::string in_words(const Value& value) {
  if (value.kind() == Value::Kind::string) return value.as_string();
  if (value.kind() == Value::Kind::boolean) return value.as_bool() ? "yes" : "no";
  std::ostringstream text;
  text << value;
  return text.str();
}

void print_facts(std::string_view title, const Value::Map& facts) {
  print_line(fmt::format("\n{}", title));
  for (const auto& [key, value] : facts)
    print_line(fmt::format("  {:<20} {}", key, in_words(value)));
}

void print_paths(const Value::Map& paths) {
  print_line("\npaths");
  for (const auto& [path, facts] : paths) {
    std::string line = fmt::format("  {:<20}", path);
    for (const auto& [fact, value] : facts.as_map())
      line += fmt::format(" {}: {}", fact, in_words(value));
    print_line(line);
  }
}

void print_settings(const Value::Map& settings) {
  print_line("\nsettings");
  for (const auto& [name, entry] : settings) {
    std::string source = in_words(*entry.find("source"));
    if (const Value* variable = entry.find("variable")) source += ", " + in_words(*variable);
    print_line(fmt::format("  {:<20} {:<20} ({})", name, in_words(*entry.find("value")), source));
  }
}

void print_limits() {
  print_line("\nlimits");
  for (const Limit& limit : limits()) {
    // The rest of the text is on the page.
    const auto end = std::min(limit.meaning.find_first_of(";."), limit.meaning.find(" ("));
    const std::string_view clause = limit.meaning.substr(0, end);
    print_line(fmt::format("  {:<26} {:>8}  {}", limit.name, limit.shown, clause));
  }
}

}  // namespace

int run_info(Format format) {
  auto settings = effective_settings();
  if (!settings) return report(settings.error(), format);
  const std::string protocol = fmt::format("{}.{}", kProtocolMajor, kProtocolMinor);
  if (format == Format::json) {
    print_json({{"version", kVersion},
                {"protocol", protocol},
                {"protocol_oldest", fmt::format("{}.{}", kProtocolMajor, kProtocolMinMinor)},
                {"build", build_facts()},
                {"paths", path_facts()},
                {"gpus", find_gpus()},
                {"machine", machine_facts()},
                {"copies", try_copies()},
                {"settings", *settings},
                {"limits", limit_values()}});
    return 0;
  }
  print_line(fmt::format("tendon {}, protocol {}", kVersion, protocol));
  print_facts("build", build_facts());
  print_paths(path_facts());
  print_gpus(find_gpus());
  print_facts("machine", machine_facts());
  print_copies(try_copies());
  print_settings(*settings);
  print_limits();
  return 0;
}

}  // namespace tendon::cli
