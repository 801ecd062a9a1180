// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_environment.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <tendon/session/address.hpp>
#include <utility>

#include "session/nonce128.hpp"

extern char** environ;  // NOLINT: the name that POSIX sets

namespace tendon::cli {
namespace {

struct HeldPort {
  detail::OwnedFd socket;
  std::uint16_t port = 0;
};

/// Reserves a port that the kernel assigns to nobody else while the socket is bound. The socket
/// never listens, so a rank may listen there with SO_REUSEADDR, which servers set.
Result<HeldPort> hold_port() {
  HeldPort held{detail::OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  if (!held.socket ||
      setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(held.socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(held.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return system_error("cli.launch", "holding a port for MASTER_PORT", errno);
  held.port = ntohs(address.sin_port);
  return held;
}

/// Ranks on several hosts need an address that all of them can reach.
Result<Address> shared_rendezvous(const LaunchOptions& options) {
  constexpr int kLastPort = 65534;
  if (options.rendezvous.empty())
    return Error{ErrorCode::invalid_argument, "cli.launch",
                 fmt::format("--nodes {} needs --rendezvous HOST:PORT, an address of the node with "
                             "--node-rank 0",
                             options.node_count)};
  TENDON_TRY(address, Address::parse(options.rendezvous));
  if (address.kind() != AddressKind::ip || address.port() == 0 || address.port() > kLastPort)
    return Error{ErrorCode::invalid_argument, "cli.launch",
                 fmt::format("--rendezvous '{}' does not lead from one node to another: with "
                             "--nodes {} it is HOST:PORT, PORT from 1 to {}",
                             options.rendezvous, options.node_count, kLastPort)};
  return address;
}

bool has_thread_count() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return value != nullptr && *value != '\0';
}

}  // namespace

Result<RankEnvironment> RankEnvironment::create(const LaunchOptions& options,
                                                const std::string& run_id, int restart) {
  RankEnvironment environment;
  environment.local_count_ = options.local_count;
  environment.node_count_ = options.node_count;
  environment.node_rank_ = options.node_rank;
  std::string rendezvous = options.rendezvous;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  if (options.node_count > 1) {
    TENDON_TRY(address, shared_rendezvous(options));
    master_address = address.host();
    // Tendon's own rendezvous occupies the port itself.
    master_port = address.port() + 1;
  } else {
    if (rendezvous.empty()) {
      // A socket without a port: no process can take it first, and nobody can guess the name.
      TENDON_TRY(token, detail::random_nonce());
      rendezvous = "unix:@tendon-launch-" + detail::to_hex(token);
    } else if (auto address = Address::parse(rendezvous); !address) {
      return std::move(address).error();
    }
    TENDON_TRY(held, hold_port());
    master_port = held.port;
    environment.master_port_ = std::move(held.socket);
  }
  environment.common_ = {
      fmt::format("WORLD_SIZE={}", options.local_count * options.node_count),
      fmt::format("LOCAL_WORLD_SIZE={}", options.local_count),
      "MASTER_ADDR=" + master_address,
      fmt::format("MASTER_PORT={}", master_port),
      "TENDON_RENDEZVOUS=" + rendezvous,
      fmt::format("TENDON_RESTART={}", restart),
      "TENDON_RUN_ID=" + run_id,
  };
  if (options.local_count > 1 && !has_thread_count())
    environment.common_.emplace_back("OMP_NUM_THREADS=1");
  return environment;
}

std::vector<std::string> RankEnvironment::of(int local_rank) const {
  std::vector<std::string> variables = common_;
  variables.push_back(fmt::format("RANK={}", node_rank_ * local_count_ + local_rank));
  variables.push_back(fmt::format("LOCAL_RANK={}", local_rank));
  const std::size_t own_count = variables.size();
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string_view text = *inherited;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto own_end = variables.begin() + static_cast<std::ptrdiff_t>(own_count);
    if (std::none_of(variables.begin(), own_end,
                     [&](const std::string& own) { return own.starts_with(name); }))
      variables.emplace_back(text);
  }
  return variables;
}

}  // namespace tendon::cli
