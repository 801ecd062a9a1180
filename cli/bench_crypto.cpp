// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_crypto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/benchmark.hpp"
#include "cli/output.hpp"
#include "secure/credentials.hpp"
#include "secure/record_protection.hpp"
#include "secure/tls_handshake.hpp"

namespace tendon::cli {
namespace {

using namespace detail::secure;
using Role = TlsHandshake::Role;
using State = TlsHandshake::State;

constexpr std::size_t kSealedBytes = std::size_t{64} << 20;  // in one round
constexpr std::uint64_t kHandshakes = 20;                    // in one round

/// Calls `work`, and adds its CPU time to `spent_s`.
template <class F>
auto timed(double& spent_s, F work) {
  const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  auto done = work();
  spent_s += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
  return done;
}

/// Seals kSealedBytes; returns the CPU time of a GB [s].
Result<double> seal_once(RecordProtection& protection, Bytes content, MutableBytes record) {
  double spent_s = 0;
  const auto seal_all = [&]() -> Result<void> {
    for (std::size_t done = 0; done < kSealedBytes; done += content.size())
      TENDON_CHECK(protection.seal(ContentType::application_data, std::span(&content, 1), record));
    return {};
  };
  TENDON_CHECK(timed(spent_s, seal_all));
  return spent_s / (static_cast<double>(kSealedBytes) / 1e9);
}

struct Handshake {
  double client_s = 0;
  double server_s = 0;
};
Result<Handshake> shake_hands(const std::shared_ptr<const Credentials>& credentials) {
  Handshake cost;
  TENDON_TRY(client,
             timed(cost.client_s, [&] { return TlsHandshake::make(credentials, Role::client); }));
  TENDON_TRY(server,
             timed(cost.server_s, [&] { return TlsHandshake::make(credentials, Role::server); }));
  std::vector<std::byte> to_server;
  std::vector<std::byte> to_client;
  while (client->state() != State::done || server->state() != State::done) {
    const auto from_server = std::exchange(to_client, {});
    if (client->state() != State::done)
      TENDON_CHECK(timed(cost.client_s, [&] { return client->advance(from_server, to_server); }));
    const auto from_client = std::exchange(to_server, {});
    TENDON_CHECK(timed(cost.server_s, [&] { return server->advance(from_client, to_client); }));
  }
  return cost;
}

struct Proof {
  std::string name;
  std::shared_ptr<const Credentials> credentials;
  std::vector<double> client_ms{};
  std::vector<double> server_ms{};
  std::vector<double> per_s{};

  [[nodiscard]] Result<void> measure() {
    Handshake all;
    for (std::uint64_t n = 0; n < kHandshakes; ++n) {
      TENDON_TRY(one, shake_hands(credentials));
      all.client_s += one.client_s;
      all.server_s += one.server_s;
    }
    constexpr auto kCount = static_cast<double>(kHandshakes);
    client_ms.push_back(all.client_s * 1e3 / kCount);
    server_ms.push_back(all.server_s * 1e3 / kCount);
    per_s.push_back(kCount / (all.client_s + all.server_s));
    return {};
  }
};

}  // namespace

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

Spread Spread::of(std::vector<double> rounds) {
  std::ranges::sort(rounds);
  return {percentile(rounds, 50), percentile(rounds, 0), percentile(rounds, 100)};
}

std::string Spread::text() const {
  return fmt::format("{} ({}..{})", format_number(median), format_number(least),
                     format_number(most));
}

void Spread::add_to(Value::Map& row, const std::string& name) const {
  row.emplace_back(name, median);
  row.emplace_back(name + "_min", least);
  row.emplace_back(name + "_max", most);
}

Result<std::vector<SealCost>> measure_sealers(std::uint64_t rounds) {
  struct Sealing {
    SealerKind kind;
    RecordProtection protection;
    std::vector<double> s_per_gb{};
  };
  std::vector<Sealing> all;
  for (const SealerKind kind : {SealerKind::ipsec_mb, SealerKind::openssl}) {
    auto made = RecordProtection::make({}, kind);
    if (!made && made.error().code == ErrorCode::not_supported) continue;
    if (!made) return std::move(made).error();
    all.push_back({kind, *std::move(made)});
  }
  const std::vector<std::byte> content(kMaxContentBytes, std::byte{7});
  std::vector<std::byte> record(kMaxRecordBytes);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (Sealing& one : all) {
      TENDON_TRY(s_per_gb, seal_once(one.protection, content, record));
      one.s_per_gb.push_back(s_per_gb);
    }
  }
  std::vector<SealCost> costs;
  costs.reserve(all.size());
  for (Sealing& one : all) costs.push_back({one.kind, Spread::of(std::move(one.s_per_gb))});
  return costs;
}

Result<std::vector<HandshakeCost>> measure_handshakes(std::uint64_t rounds,
                                                      const BenchCredentials& credentials) {
  TENDON_TRY(key, Credentials::load(credentials.key()));
  TENDON_TRY(certificates, Credentials::load(credentials.certificates()));
  std::array proofs{Proof{"key", key}, Proof{"certificate", certificates}};
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (Proof& proof : proofs) TENDON_CHECK(proof.measure());
  std::vector<HandshakeCost> costs;
  costs.reserve(proofs.size());
  for (Proof& proof : proofs) {
    costs.push_back({proof.name, Spread::of(std::move(proof.client_ms)),
                     Spread::of(std::move(proof.server_ms)), Spread::of(std::move(proof.per_s))});
  }
  return costs;
}

std::vector<std::string> cpu_features() {
  constexpr std::array<std::string_view, 7> kUsed = {"aes",  "pclmulqdq", "avx",       "vaes",
                                                     "avx2", "avx512f",   "vpclmulqdq"};
  std::vector<std::string> found;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; found.empty() && std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (std::ranges::find(kUsed, word) != kUsed.end()) found.push_back(word);
  }
  return found;
}

}  // namespace tendon::cli
