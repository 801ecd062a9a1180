// SPDX-License-Identifier: Apache-2.0
#include "group/membership/launcher.hpp"

#include <cstdlib>

namespace tendon::v0::detail {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
  const char* on_this_host;  // the number of ranks there
};
// In the order in which they are tried.
constexpr Launcher kCounting[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
};

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  return text;
}

std::optional<std::string> all_on_this_host(const Variables& environment, std::uint32_t size) {
  const std::string all = std::to_string(size);
  for (const Launcher& launcher : kCounting) {
    // The launcher ran inside another one, whose variables are about other processes.
    if (!environment(launcher.rank)) continue;
    if (environment(launcher.size) != all || environment(launcher.on_this_host) != all) return {};
    return std::string(launcher.on_this_host) + " = " + launcher.size + " = " + all;
  }
  if (environment("SLURM_PROCID") && environment("SLURM_NTASKS") == all &&
      environment("SLURM_STEP_NUM_NODES") == "1")
    return std::string("SLURM_STEP_NUM_NODES = 1");
  return {};
}

}  // namespace tendon::v0::detail
