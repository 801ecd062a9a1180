// SPDX-License-Identifier: Apache-2.0
// `tendon bench secure` and the credentials of `tendon bench pipe`, and the bytes that the compared
// transport puts on the wire.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench_credentials.hpp"
#include "cli/bench_hosts.hpp"
#include "cli/stream_socket.hpp"
#include "process/command.hpp"
#include "process/network.hpp"
#include "secure/sealer_choice.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/variable.hpp"

namespace tendon::test {
namespace {

using cli::StreamSocket;
using Json = nlohmann::json;
using Role = detail::secure::TlsHandshake::Role;
using testing::HasSubstr;
using testing::Not;

/// Expects a median that is a time, a rate or a ratio, between the least and the most.
void expect_spread(const Json& row, const std::string& name) {
  for (const std::string& key : {name, name + "_min", name + "_max"}) {
    ASSERT_TRUE(row.contains(key) && row[key].is_number()) << key << " of " << row;
    EXPECT_TRUE(std::isfinite(row[key].get<double>()) && row[key].get<double>() >= 0) << row;
  }
  EXPECT_LE(row[name + "_min"].get<double>(), row[name].get<double>()) << row;
  EXPECT_LE(row[name].get<double>(), row[name + "_max"].get<double>()) << row;
}

std::vector<std::string> modes_of(const Json& results) {
  std::vector<std::string> modes;
  for (const Json& row : results) modes.push_back(row["mode"]);
  return modes;
}

Ended bench_secure(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "secure"});
  return run_tendon(more);
}

TEST(BenchSecure, PrintsAllFiguresOfAllWays) {
  const Ended ended = bench_secure({"--json", "--messages", "64,1M", "--rounds", "2", "-n", "3"});
  ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
  const Json document = Json::parse(ended.out);
  EXPECT_EQ(document["benchmark"], "secure");
  EXPECT_EQ(document["link"], "loopback");
  EXPECT_EQ(document["rounds"], 2);
  ASSERT_THAT(modes_of(document["results"]),
              testing::ElementsAre("plaintext", "records", "socket", "ssl", "plaintext", "records",
                                   "socket", "ssl", "plaintext", "records", "socket", "ssl"))
      << "times of ends that sleep, rates, times of ends that spin";
  for (const Json& row : document["results"]) {
    expect_spread(row, "wall_s");
    const bool is_rate = row["size_bytes"] == 1 << 20;
    const std::string mode = row["mode"];
    if (is_rate) {
      for (const char* figure :
           {"bandwidth_gb_per_s", "sender_cpu_s_per_gb", "receiver_cpu_s_per_gb"})
        expect_spread(row, figure);
      EXPECT_GT(row["bandwidth_gb_per_s"].get<double>(), 0);
    } else {
      expect_spread(row, "latency_us_p50");
      expect_spread(row, "latency_us_p99");
      EXPECT_GT(row["latency_us_p50"].get<double>(), 0);
    }
    EXPECT_EQ(row["bandwidth_gb_per_s"].is_null(), !is_rate) << row;
    if (mode == "records" || mode == "ssl") {
      expect_spread(row["ratio"], mode == "records" ? "plaintext" : "socket");
      if (is_rate) {
        expect_spread(row["ratio"], "sender_cpu");
        expect_spread(row["ratio"], "receiver_cpu");
      }
    } else {
      EXPECT_TRUE(row["ratio"].empty()) << row;
    }
    EXPECT_EQ(row["protection"], mode == "ssl"       ? "TLSv1.3 TLS_AES_256_GCM_SHA384"
                                 : mode == "records" ? "secure"
                                 : mode == "socket"  ? "none"
                                                     : "plaintext");
  }
  const Json& crypto = document["crypto"];
  for (const char* fact : {"cpu_features", "sealer", "openssl", "openssl_provider", "ipsec_mb"})
    EXPECT_TRUE(crypto.contains(fact)) << fact;
  ASSERT_FALSE(crypto["sealing"].empty());
  for (const Json& row : crypto["sealing"]) expect_spread(row, "cpu_s_per_gb");
  ASSERT_EQ(crypto["handshakes"].size(), 2U);
  for (const Json& row : crypto["handshakes"])
    for (const char* figure : {"client_cpu_ms", "server_cpu_ms", "handshakes_per_s"})
      expect_spread(row, figure);
}

TEST(BenchSecure, PrintsTablesForPeople) {
  const Ended ended = bench_secure(
      {"--sealer", "openssl", "--messages", "64,1M", "--rounds", "1", "-n", "2", "--no-pin"});
  ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
  for (const char* text : {"# records are sealed by openssl;", "# handshake by certificate: ",
                           "p50 (us)", "receiver s/GB", "not pinned"})
    EXPECT_THAT(ended.out, HasSubstr(text));
}

TEST(BenchSecure, AWrongOptionIsAnErrorThatNamesIt) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--link", "veth:2g"},
                                                {"--sealer", "rot13"},
                                                {"--messages", "0"},
                                                {"--messages", "2G"},
                                                {"--messages", "big"},
                                                {"--rounds", "0"},
                                                {"-n", "-1"},
                                                {"--softirq", "sender"}}) {
    const Ended ended = bench_secure(words);
    EXPECT_EQ(ended.code, error_info(ErrorCode::invalid_argument).exit_code) << words[1];
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr(words[0])) << "the flag is named";
  }
}

TEST(BenchSecure, ASealerThatIsNotHereIsNotSupported) {
  const bool is_here =
      detail::secure::make_sealer(detail::secure::SealerKind::ipsec_mb, detail::secure::AeadKey())
          .has_value();
  const Ended ended = bench_secure(
      {"--json", "--sealer", "ipsec-mb", "--messages", "1", "--rounds", "1", "-n", "1"});
  EXPECT_EQ(ended.code, is_here ? 0 : error_info(ErrorCode::not_supported).exit_code);
  if (!is_here) return;
  EXPECT_EQ(Json::parse(ended.out)["crypto"]["sealer"], "ipsec-mb");
}

TEST(BenchSecure, MeasuresOverALinkBetweenNamespaces) {
  if (const auto why_not = Network::why_not()) GTEST_SKIP() << *why_not;
  if (!std::filesystem::exists("/usr/sbin/tc") && !std::filesystem::exists("/sbin/tc"))
    GTEST_SKIP() << "not installed: tc";
  const Ended ended = bench_secure({"--json", "--link", "veth:10g", "--messages", "64,1M",
                                    "--rounds", "1", "-n", "2", "--softirq", "receiver"});
  ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
  const Json document = Json::parse(ended.out);
  EXPECT_EQ(document["link"], "veth:10g");
  EXPECT_EQ(document["softirq"], "receiver");
  EXPECT_EQ(document["results"].size(), 12U);
}

TEST(BenchSecure, ALinkThatCannotBeMadeIsSaidPlainly) {
  const Variable nowhere("PATH", "/nowhere");
  const Ended ended = bench_secure({"--link", "veth:1g", "--rounds", "1", "-n", "1"});
  EXPECT_EQ(ended.code, error_info(ErrorCode::not_supported).exit_code);
  EXPECT_THAT(ended.err, HasSubstr("--link veth:1g needs root, network namespaces, ip and tc"));
}

/// Two sockets, with a thread between them that forwards the bytes of each and keeps a copy.
class Wire {
 public:
  Wire() {
    std::array<int, 2> pair{};
    for (auto& side : sides_) {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
      side = detail::OwnedFd(pair[0]);
      (&side == &sides_[0] ? here_ : there_) = detail::OwnedFd(pair[1]);
    }
    thread_ = std::thread([this] { hand_on(); });
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() { (void)seen(); }

  [[nodiscard]] detail::OwnedFd take_here() { return std::move(here_); }
  [[nodiscard]] detail::OwnedFd take_there() { return std::move(there_); }
  /// Closes both ends, and returns all bytes that passed.
  [[nodiscard]] const std::string& seen() {
    here_.reset();
    there_.reset();
    if (thread_.joinable()) thread_.join();
    return seen_;
  }

 private:
  void hand_on() {
    std::array<pollfd, 2> ends{pollfd{sides_[0].get(), POLLIN, 0},
                               pollfd{sides_[1].get(), POLLIN, 0}};
    std::array<char, 4096> some{};
    while (poll(ends.data(), ends.size(), -1) > 0) {
      for (std::size_t n = 0; n < ends.size(); ++n) {
        if (ends[n].revents == 0) continue;
        const ssize_t bytes = read(ends[n].fd, some.data(), some.size());
        if (bytes <= 0) {
          for (const auto& side : sides_) (void)shutdown(side.get(), SHUT_RDWR);
          return;
        }
        seen_.append(some.data(), static_cast<std::size_t>(bytes));
        (void)send(ends[1 - n].fd, some.data(), static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
      }
    }
  }

  std::array<detail::OwnedFd, 2> sides_;  // the thread's ends
  detail::OwnedFd here_;
  detail::OwnedFd there_;
  std::string seen_;
  std::thread thread_;
};

constexpr std::string_view kPlanted = "a text that no wire may show";

/// Sends kPlanted from one end to the other; has the bytes that the wire has seen, and the
/// protection.
struct Sent {
  std::string received;
  std::string seen;
  std::string protection;
};
template <class Make>
Sent send_over_wire(Make make) {
  Wire wire;
  Sent sent;
  {
    Result<StreamSocket> there = Error{ErrorCode::internal, "test", "not made"};
    std::thread other([&] { there = make(wire.take_there(), Role::server); });
    Result<StreamSocket> here = make(wire.take_here(), Role::client);
    other.join();
    EXPECT_TRUE(succeeds(here));
    EXPECT_TRUE(succeeds(there));
    if (!here || !there) return sent;
    sent.protection = here->protection();
    std::vector<std::byte> place(kPlanted.size());
    EXPECT_TRUE(succeeds(here->send(as_bytes(kPlanted), kPatience)));
    EXPECT_TRUE(succeeds(there->receive(place, kPatience)));
    sent.received = as_text(place);
  }
  sent.seen = wire.seen();
  return sent;
}

TEST(BenchSecureSocket, TheComparedTransportIsTls) {
  const auto credentials = cli::BenchCredentials::make();
  ASSERT_TRUE(succeeds(credentials));
  const Sent sent = send_over_wire([&](detail::OwnedFd fd, Role role) {
    return StreamSocket::tls(std::move(fd), role, credentials->certificates(),
                             cli::SocketWait::sleep);
  });
  EXPECT_EQ(sent.received, kPlanted);
  EXPECT_EQ(sent.protection, "TLSv1.3 TLS_AES_256_GCM_SHA384");
  EXPECT_GT(sent.seen.size(), kPlanted.size());
  EXPECT_THAT(sent.seen, Not(HasSubstr(std::string(kPlanted))));
}

TEST(BenchSecureSocket, TheBareOneShowsAll) {
  const Sent sent = send_over_wire([](detail::OwnedFd fd, Role /*role*/) {
    return StreamSocket::bare(std::move(fd), cli::SocketWait::spin);
  });
  EXPECT_EQ(sent.received, kPlanted);
  EXPECT_EQ(sent.protection, "none");
  EXPECT_EQ(sent.seen, kPlanted);
}

TEST(BenchSecureSocket, ACertificateOfAnotherCaIsRefused) {
  const auto ours = cli::BenchCredentials::make();
  const auto others = cli::BenchCredentials::make();
  ASSERT_TRUE(ours && others);
  Wire wire;
  bool is_made_there = true;
  std::thread server([&] {
    is_made_there = StreamSocket::tls(wire.take_there(), Role::server, others->certificates(),
                                      cli::SocketWait::sleep)
                        .has_value();
  });
  const auto here = StreamSocket::tls(wire.take_here(), Role::client, ours->certificates(),
                                      cli::SocketWait::sleep);
  server.join();
  EXPECT_TRUE(fails_with(here, ErrorCode::authentication_failed));
  EXPECT_FALSE(is_made_there);
}

TEST(BenchPipe, TakesCredentialsAsSendAndRecvDo) {
  const ScratchDir folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  ASSERT_EQ(run_tendon({"key", "new", path("fleet.key")}).code, 0);
  ASSERT_EQ(run_tendon({"key", "ca", path("ca")}).code, 0);
  ASSERT_EQ(run_tendon({"key", "cert", "--ca", path("ca"), "--name", "worker-3", path("out")}).code,
            0);
  const auto bench = [](std::vector<std::string> more) {
    std::vector<std::string> words{"bench", "pipe", "--json", "--path", "tcp", "--check",
                                   "-b",    "16",   "-e",     "16",     "-n",  "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tendon(words);
  };
  const std::vector<std::string> certificates = {"--cert",     path("out/worker-3.crt"),
                                                 "--cert-key", path("out/worker-3.key"),
                                                 "--ca",       path("out/ca.crt")};
  auto named = certificates;
  named.insert(named.end(), {"--peer", "worker-3"});
  for (const auto& words : {std::vector<std::string>{"--key", path("fleet.key")}, named}) {
    const Ended ended = bench(words);
    ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
    EXPECT_EQ(Json::parse(ended.out)["results"][0]["wrong"], 0);
  }
  const Ended stranger = bench(certificates);
  EXPECT_EQ(stranger.code, error_info(ErrorCode::authentication_failed).exit_code)
      << "127.0.0.1 is no name of that certificate: " << testing::PrintToString(stranger);
  const Ended both = bench({"--key", path("fleet.key"), "--insecure-plaintext"});
  EXPECT_EQ(both.code, error_info(ErrorCode::invalid_argument).exit_code);
  EXPECT_EQ(bench({"--key", path("none.key")}).code,
            error_info(ErrorCode::file_not_found).exit_code);
}

}  // namespace
}  // namespace tendon::test
