// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/limits.hpp>
#include <vector>

#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/failpoint.hpp"
#include "core/fd.hpp"
#include "runtime/settings.hpp"
#include "session/machine.hpp"

namespace tendon::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Limit {
  std::string_view name;
  std::uint64_t value;
  std::string_view unit;
  std::string_view meaning;
};

constexpr Limit kLimits[] = {
    {"kMaxDimensions", kMaxDimensions, "", "dimensions of a tensor"},
    {"kMaxNameBytes", kMaxNameBytes, "bytes", "one name in a path"},
    {"kMaxPathBytes", kMaxPathBytes, "bytes", "one path"},
    {"kMaxDepth", kMaxDepth, "", "names in a path; nesting of non-tensor data"},
    {"kMaxLeaves", kMaxLeaves, "", "tensors in a TensorDict"},
    {"kMaxNodes", kMaxNodes, "", "TensorDicts in a TensorDict"},
    {"kMaxSchemaBytes", kMaxSchemaBytes, "bytes", "encoding of a schema"},
    {"kMaxValuesBytes", kMaxValuesBytes, "bytes", "non-tensor data of a TensorDict, as JSON"},
    {"kMaxFileHeaderBytes", kMaxFileHeaderBytes, "bytes", "header of a safetensors file"},
    {"kMaxTensorBytes", kMaxTensorBytes, "bytes", "one tensor, and all of a TensorDict"},
    {"kMaxHelloBytes", kMaxHelloBytes, "bytes", "a frame of the handshake"},
    {"kMaxIdentityTextBytes", kMaxIdentityTextBytes, "bytes", "host and name of a peer, each"},
    {"kMaxReasonBytes", kMaxReasonBytes, "bytes", "the reason of a rejection"},
    {"kMaxVersionTextBytes", kMaxVersionTextBytes, "bytes", "the version in a hello"},
    {"kHandshakeTimeout", static_cast<std::uint64_t>(kHandshakeTimeout.count()), "s",
     "a whole handshake"},
    {"kHalfOpenPerListener", kHalfOpenPerListener, "", "handshakes of a listener at once"},
    {"kBacklog", kBacklog, "", "pipes that wait for accept"},
    {"kMaxInlineBytes", kMaxInlineBytes, "bytes", "payload that travels beside its descriptor"},
    {"kMaxFrameBytes", kMaxFrameBytes, "bytes", "a frame of a bulk stream"},
    {"kMaxMessageHeaderBytes", kMaxMessageHeaderBytes, "bytes", "the header of a raw message"},
    {"kMaxPipesPerLink", kMaxPipesPerLink, "", "pipes between two Contexts"},
    {"kPipeWindowMessages", kPipeWindowMessages, "", "messages of a pipe not yet taken"},
    {"kMaxStreamsPerLink", kMaxStreamsPerLink, "", "bulk connections of a tcp link"},
    {"kMaxHostNameBytes", kMaxHostNameBytes, "bytes", "a host name"},
    {"kMaxUnixPathBytes", kMaxUnixPathBytes, "bytes", "path of a unix socket"},
    {"kMaxPendingLookups", kMaxPendingLookups, "", "host names looked up at once"},
};

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

/// What the fast path needs of the kernel, tried and not guessed from a version.
struct ShmFacts {
  bool sealed_memory = false;  ///< memfd with seals
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

Json build_json() {
  return {{"compiler", compiler()},
          {"optimised", optimised()},
          {"failpoints", detail::failpoints_built()},
          {"sanitizer", sanitizer()}};
}

Json paths_json() {
  const ShmFacts facts = probe_shm();
  return {{"shm",
           {{"available", facts.sealed_memory && facts.death_notice},
            {"sealed_memory", facts.sealed_memory},
            {"death_notice", facts.death_notice},
            {"prefault", facts.prefault}}},
          {"tcp", {{"available", true}}}};
}

Json machine_json() {
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

std::string_view to_string(Transport transport) {
  switch (transport) {
    case Transport::automatic:
      return "automatic";
    case Transport::shm:
      return "shm";
    case Transport::tcp:
      return "tcp";
  }
  return "automatic";
}

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// One setting, and who decided: the environment variable, or nobody.
Json setting(Json value, const char* variable = nullptr) {
  Json entry{{"value", std::move(value)}, {"source", "default"}};
  if (variable != nullptr && !text_of(variable).empty())
    entry["source"] = fmt::format("environment: {}", variable);
  else if (variable != nullptr)
    entry["variable"] = variable;
  return entry;
}

Result<Json> settings_json() {
  TENDON_TRY(options, detail::resolve_options({}));
  const LogLevel level = parse_log_level(text_of("TENDON_LOG")).value_or(LogLevel::warn);
  Json settings = {
      {"name", setting(options.name, "TENDON_NAME")},
      {"transport", setting(to_string(options.transport), "TENDON_TRANSPORT")},
      {"log", setting(to_string(level), "TENDON_LOG")},
      {"progress", setting("service")},
      {"wait_policy", setting("balanced")},
      {"link_cap_bytes", setting(options.link_cap_bytes)},
      {"pool_cap_bytes", setting(options.pool_cap_bytes)},
      {"streams", setting(options.streams)},
      {"linger_ms", setting(options.linger.count())},
      {"lease_ms", setting(options.lease.count())},
  };
  auto directory = detail::runtime_directory();
  settings["runtime_directory"] =
      setting(directory ? *directory : directory.error().message(), "XDG_RUNTIME_DIR");
  if (detail::failpoints_built())
    settings["failpoints"] = setting(text_of("TENDON_FAILPOINTS"), "TENDON_FAILPOINTS");
  return settings;
}

Json limits_json() {
  Json limits = Json::object();
  for (const Limit& limit : kLimits) limits[std::string(limit.name)] = limit.value;
  return limits;
}

std::string in_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

void print_section(std::string_view title, const Json& section) {
  print_line(fmt::format("\n{}", title));
  for (const auto& [key, value] : section.items()) {
    print_line(fmt::format("  {:<20} {}", key, in_words(value)));
  }
}

void print_text(const Json& document) {
  print_line(fmt::format("tendon {}, protocol {}", in_words(document["version"]),
                         in_words(document["protocol"])));
  print_section("build", document["build"]);
  print_line("\npaths");
  for (const auto& [path, facts] : document["paths"].items()) {
    std::string line =
        fmt::format("  {:<20} {}", path, facts["available"].get<bool>() ? "available" : "missing");
    for (const auto& [fact, value] : facts.items()) {
      if (fact != "available") line += fmt::format(", {}: {}", fact, in_words(value));
    }
    print_line(line);
  }
  print_section("machine", document["machine"]);
  print_line("\nsettings");
  for (const auto& [name, entry] : document["settings"].items()) {
    std::string source = in_words(entry["source"]);
    if (entry.contains("variable")) source += fmt::format("; set {}", in_words(entry["variable"]));
    print_line(fmt::format("  {:<20} {:<24} ({})", name, in_words(entry["value"]), source));
  }
  print_line("\nlimits");
  for (const Limit& limit : kLimits) {
    print_line(fmt::format("  {:<24} {:>20} {:<6} {}", limit.name, limit.value, limit.unit,
                           limit.meaning));
  }
}

int info(Format format) {
  auto settings = settings_json();
  if (!settings) return report(settings.error(), format);
  const Json document = {
      {"version", kVersion},
      {"protocol", fmt::format("{}.{}", kProtocolMajor, kProtocolMinor)},
      {"protocol_oldest", fmt::format("{}.{}", kProtocolMajor, kProtocolMinMinor)},
      {"build", build_json()},
      {"paths", paths_json()},
      {"machine", machine_json()},
      {"settings", *settings},
      {"limits", limits_json()},
  };
  if (format == Format::json)
    print_json(document);
  else
    print_text(document);
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("info", "Build, paths, machine, settings and limits");
  verb->add_flag("--json", *json, "One JSON document on stdout");
  verb->callback([json, &exit_code] { exit_code = info(*json ? Format::json : Format::text); });
}

}  // namespace tendon::cli
