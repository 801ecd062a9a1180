// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <tendon/group/rendezvous.hpp>

#include "group/membership/agreement_message.hpp"
#include "group/membership/launcher.hpp"

namespace tendon::v0 {
namespace {

constexpr std::string_view kWhere = "group.rendezvous";

using detail::variable;

// The names of the same thing in torchrun and `tendon launch`, OpenMPI, MPICH, Slurm.
constexpr std::initializer_list<const char*> kRankNames = {"RANK", "OMPI_COMM_WORLD_RANK",
                                                           "PMI_RANK", "SLURM_PROCID"};
constexpr std::initializer_list<const char*> kSizeNames = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                                           "PMI_SIZE", "SLURM_NTASKS"};

// The longest name of a job: with its prefix it fits a socket's name.
constexpr std::size_t kLongestJob = 80;

struct Number {
  std::uint32_t value = 0;
  const char* name = nullptr;  // of the variable, null when none is set
  std::optional<Error> problem;
};

Number read_number(std::initializer_list<const char*> names) {
  Number number;
  for (const char* const name : names) {
    const auto text = variable(name);
    if (!text) continue;
    number.name = name;
    const char* const end = text->data() + text->size();
    const auto [stop, failure] = std::from_chars(text->data(), end, number.value);
    if (failure != std::errc() || stop != end || number.value > detail::kMaxPlaces) {
      number.problem = Error{ErrorCode::invalid_argument, kWhere,
                             std::string(name) + " is '" + *text + "'; legal are 0 to " +
                                 std::to_string(detail::kMaxPlaces)};
    }
    break;
  }
  return number;
}

Error missing(const std::string& what) {
  return Error{ErrorCode::invalid_argument, kWhere,
               what +
                   " is not set; start the program with `tendon launch -n N -- program`, mpirun or "
                   "srun, or name the rendezvous in the program"};
}

// The meeting point of the processes of one mpirun or srun if all are on one host: a socket without
// a file, under a name that no other job has. Neither launcher states an address.
std::optional<std::string> address_of_job(std::string_view rank_name, std::uint32_t size) {
  const auto name = [](const std::string& job) -> std::optional<std::string> {
    const bool plain = std::all_of(job.begin(), job.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '@' || c == '_';
    });
    if (!plain || job.size() > kLongestJob) return {};
    return "unix:@tendon-job-" + job;
  };
  // By the launcher that set the rank: one may run inside another.
  if (const auto job = variable("PMIX_NAMESPACE");
      job && rank_name.starts_with("OMPI_") &&
      variable("OMPI_COMM_WORLD_LOCAL_SIZE") == std::to_string(size))
    return name(*job);
  const auto job = variable("SLURM_JOB_ID");
  const auto step = variable("SLURM_STEP_ID");
  if (job && step && rank_name.starts_with("SLURM_") && variable("SLURM_STEP_NUM_NODES") == "1")
    return name(*job + "." + *step);
  return {};
}

}  // namespace

RendezvousStore::~RendezvousStore() = default;
std::string RendezvousStore::host() const { return {}; }

Rendezvous Rendezvous::at(std::string address, GroupRank rank, std::uint32_t size) {
  Rendezvous rendezvous;
  rendezvous.address_ = std::move(address);
  rendezvous.rank_ = rank;
  rendezvous.size_ = size;
  return rendezvous;
}

Rendezvous Rendezvous::through(std::shared_ptr<RendezvousStore> store, GroupRank rank,
                               std::uint32_t size) {
  Rendezvous rendezvous;
  rendezvous.store_ = std::move(store);
  rendezvous.rank_ = rank;
  rendezvous.size_ = size;
  return rendezvous;
}

Rendezvous Rendezvous::from_environment() {
  Rendezvous rendezvous;
  const Number rank = read_number(kRankNames);
  const Number size = read_number(kSizeNames);
  for (const Number& number : {rank, size})
    if (number.problem && !rendezvous.problem_) rendezvous.problem_ = number.problem;
  if (rendezvous.problem_) return rendezvous;
  if (rank.name == nullptr || size.name == nullptr) {
    rendezvous.problem_ = missing(rank.name == nullptr ? "RANK" : "WORLD_SIZE");
    return rendezvous;
  }
  rendezvous.rank_ = GroupRank{rank.value};
  rendezvous.size_ = size.value;
  if (const auto address = variable("TENDON_RENDEZVOUS")) {
    rendezvous.address_ = *address;
    return rendezvous;
  }
  const auto host = variable("MASTER_ADDR");
  const auto port = variable("MASTER_PORT");
  if (size.value == 1 && (!host || !port)) return rendezvous;  // nobody to meet
  if (!host && !port) {
    if (auto address = address_of_job(rank.name, size.value)) {
      rendezvous.address_ = *std::move(address);
      return rendezvous;
    }
  }
  if (!host || !port) {
    // A launcher has started it, so that is not what is missing.
    rendezvous.problem_ = Error{
        ErrorCode::invalid_argument, kWhere,
        "TENDON_RENDEZVOUS, or " + std::string(host ? "MASTER_PORT" : "MASTER_ADDR") +
            ", is not set; give all members the same TENDON_RENDEZVOUS=HOST:PORT, a free port "
            "of rank 0's host (mpirun -x TENDON_RENDEZVOUS, srun --export=ALL)"};
    return rendezvous;
  }
  if (variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    rendezvous.problem_ =
        Error{ErrorCode::invalid_argument, kWhere,
              "torchrun's agent listens at MASTER_PORT (" + *port +
                  ") itself, so rank 0 cannot; set TENDON_RENDEZVOUS=HOST:PORT to a free port of "
                  "rank 0's host, or join through torch's Store"};
    return rendezvous;
  }
  const bool ipv6 = host->find(':') != std::string::npos && host->front() != '[';
  rendezvous.address_ = (ipv6 ? "[" + *host + "]" : *host) + ":" + *port;
  return rendezvous;
}

}  // namespace tendon::v0
