// SPDX-License-Identifier: Apache-2.0
#include "cli/info_gpus.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>

#include "cli/output.hpp"
#include "core/fd.hpp"
#include "cuda/library_choice.hpp"
#include "cuda/survey.hpp"

namespace tendon::cli {
namespace {

namespace cuda = detail::cuda;

constexpr std::chrono::seconds kPatience{10};

Value::Map facts_of(const cuda::GpuFacts& gpu) {
  Value::List lacks;
  for (const std::string_view each : gpu.lacks) lacks.emplace_back(each);
  return {{"device", to_string(gpu.device)},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"compute_capability", gpu.compute_capability},
          {"lacks", std::move(lacks)}};
}

Value::Map ask_driver() {
  const auto driver = cuda::process_driver();
  if (!driver) return {{"error", driver.error().detail}};
  const auto found = cuda::survey(**driver);
  if (!found) return {{"error", found.error().detail}};
  Value::List devices;
  for (const cuda::GpuFacts& gpu : found->gpus) devices.emplace_back(facts_of(gpu));
  return {{"driver", found->driver}, {"devices", std::move(devices)}};
}

int milliseconds_to(Deadline deadline) {
  using std::chrono::ceil;
  return static_cast<int>(ceil<std::chrono::milliseconds>(deadline.remaining()).count());
}

/// Reads until the other end closes; returns nothing where that takes too long.
std::optional<std::string> read_all(int descriptor, Deadline deadline) {
  std::string text;
  for (;;) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = poll(&waiting, 1, milliseconds_to(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, 4096> piece;
    const ssize_t size = read(descriptor, piece.data(), piece.size());
    if (size <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
}

Value::Map ask_in_child() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return {{"error", "no pipe can be made to a process that asks the driver"}};
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = to_json(Value(ask_driver())).value_or("");
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  const detail::OwnedFd answer(ends[0]);
  if (child < 0) return {{"error", "no process can be started to ask the driver"}};
  const auto text = read_all(answer.get(), kPatience);
  kill(child, SIGKILL);
  if (!text)
    return {{"error", fmt::format("the driver did not answer within {} s", kPatience.count())}};
  // A child that hangs in the kernel is left there: nothing can end it.
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const auto facts = parse_json(as_bytes(*text));
  if (!facts || facts->kind() != Value::Kind::map)
    return {
        {"error", fmt::format("the process that asked the driver ended (wait status {})", status)}};
  return facts->as_map();
}

}  // namespace

Value::Map find_gpus() {
  const auto library = cuda::chosen_library();
  if (!library) return {{"error", library.error().detail}};
  Value::Map facts{{"library", *library}};
  for (auto& fact : ask_in_child()) facts.push_back(std::move(fact));
  return facts;
}

void print_gpus(const Value::Map& facts) {
  const Value all(facts);
  print_line("\ngpus");
  if (const Value* error = all.find("error")) {
    print_line(fmt::format("  none: {}", error->as_string()));
    return;
  }
  print_line(fmt::format("  {:<20} {}, CUDA {}", "driver", all.find("library")->as_string(),
                         all.find("driver")->as_string()));
  for (const Value& gpu : all.find("devices")->as_list()) {
    const auto text = [&](const char* name) { return gpu.find(name)->as_string(); };
    print_line(fmt::format("  {:<20} {}, compute capability {}, {}", text("device"), text("name"),
                           text("compute_capability"), text("uuid")));
    for (const Value& lack : gpu.find("lacks")->as_list())
      print_line(fmt::format("  {:<20} has no {}", "", lack.as_string()));
  }
}

}  // namespace tendon::cli
