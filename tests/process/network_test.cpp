// SPDX-License-Identifier: Apache-2.0
// Groups over networks. Each member has a network namespace, which stands for a host, and a runtime
// directory of its own, so that nothing proves the same host.
#include "process/network.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "process/peer.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using Environment = std::map<std::string, std::string>;

class GroupOverNetworks : public ProcessTest {
 protected:
  struct Setting {
    std::uint32_t networks = 1;
    std::uint32_t rendezvous_network = 0;
    std::string profile = "plaintext";
    std::string lease_ms = "3000";
    /// The settings of member `rank` besides the common ones.
    std::string (*listen)(std::uint32_t rank) = nullptr;
    Environment (*environment)(std::uint32_t rank) = nullptr;
    /// The host of the rendezvous, as member `rank` knows it.
    std::string (*rendezvous)(std::uint32_t rank) = nullptr;
    /// How many members each host has, with successive ranks.
    std::uint32_t members_per_host = 1;
  };
  void SetUp() override {
    if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
  }
  /// Makes hosts and wires, no members yet.
  void lay_network(std::uint32_t hosts, std::uint32_t networks = 1) {
    network_.emplace(hosts, networks);
  }
  void start_member(std::uint32_t rank, const Setting& setting) {
    Peer::Options peer;
    peer.program = "member_main";
    const std::uint32_t host = rank / setting.members_per_host;
    const std::string rendezvous = setting.rendezvous != nullptr
                                       ? setting.rendezvous(rank)
                                       : Network::address(0, setting.rendezvous_network);
    peer.arguments = {rendezvous + ":7701",
                      std::to_string(rank),
                      std::to_string(network_->host_count() * setting.members_per_host),
                      "auto",
                      setting.profile,
                      setting.lease_ms};
    if (setting.listen != nullptr) peer.arguments.push_back(setting.listen(rank));
    if (setting.environment != nullptr) peer.environment = setting.environment(rank);
    peer.environment["TENDON_RUNTIME_DIR"] = folder_of(host);
    network_->inside(host, [&] { members_.emplace_back(std::move(peer)); });
  }
  void start_members(const Setting& setting) {
    const std::uint32_t count = network_->host_count() * setting.members_per_host;
    for (std::uint32_t rank = 0; rank < count; ++rank) start_member(rank, setting);
    for (Peer& member : members_) EXPECT_TRUE(is_ok(member.line()));
  }
  void start(std::uint32_t hosts, const Setting& setting) {
    lay_network(hosts, setting.networks);
    start_members(setting);
  }
  void start(std::uint32_t hosts) { start(hosts, Setting()); }
  /// Ends the members and the network; others may follow.
  void stop() {
    members_.clear();
    network_.reset();
  }
  Network& network() { return *network_; }
  Peer& member(std::uint32_t rank) { return members_[rank]; }
  void all_do(const std::string& command) {
    for (Peer& member : members_) member.tell(command);
    for (Peer& member : members_) EXPECT_TRUE(is_ok(member.line())) << command;
  }
  /// The runtime directory of a host.
  [[nodiscard]] std::string folder_of(std::uint32_t host) const {
    std::string folder = runtime_folder() + "/host" + std::to_string(host);
    EXPECT_TRUE(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) << folder;
    return folder;
  }
  /// Waits until `host` has lost packets to drop().
  void wait_until_it_hurts(std::uint32_t host) {
    EXPECT_TRUE(eventually([&] { return network().dropped_count(host) > 0; }));
  }
  /// The first two continue without the third.
  void the_majority_goes_on() {
    for (const std::uint32_t rank : {0u, 1u}) member(rank).tell("shrink");
    for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(member(rank).line(), "ok 2");
    the_majority_is_right();
  }
  void the_majority_is_right(std::uint32_t other = 1) {
    for (const std::string command : {"loop 20 200000", "every 1000"}) {
      for (const std::uint32_t rank : {0u, other}) member(rank).tell(command);
      for (const std::uint32_t rank : {0u, other}) EXPECT_TRUE(is_ok(member(rank).line()));
    }
  }

 private:
  std::optional<Network> network_;
  std::deque<Peer> members_;
};

// Elements of 8 bytes: below and above every limit between algorithms.
constexpr const char* kSizes[] = {"1", "3000", "40000", "600000"};

TEST_F(GroupOverNetworks, EveryOperationIsRightAmongThree) {
  start(3);
  for (const std::string size : kSizes) all_do("every " + size);
  all_do("loop 50 1000");
}

TEST_F(GroupOverNetworks, EveryOperationIsRightAmongFour) {
  start(4);
  for (const std::string size : kSizes) all_do("every " + size);
}

TEST_F(GroupOverNetworks, MembersListenAtTheInterfaceThatReachesTheRendezvous) {
  for (const std::uint32_t way : {0u, 1u}) {
    SCOPED_TRACE("network " + std::to_string(way));
    start(3, {.networks = 2, .rendezvous_network = way});
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      const std::string paths = value_of(member(rank).ask("paths"));
      EXPECT_TRUE(paths.starts_with("tcp tcp " + Network::address(rank, way) + ":")) << paths;
    }
    all_do("every 1000");
    stop();
  }
}

TEST_F(GroupOverNetworks, ListenIsObeyed) {
  // On the network of the rendezvous, 1 and 2 cannot reach each other.
  for (const bool by_environment : {false, true}) {
    SCOPED_TRACE(by_environment ? "TENDON_LISTEN" : "GroupOptions::listen");
    Setting setting{.networks = 2};
    if (by_environment)
      setting.environment = [](std::uint32_t rank) {
        return Environment{{"TENDON_LISTEN", Network::address(rank, 1) + ":0"}};
      };
    else
      setting.listen = [](std::uint32_t rank) { return Network::address(rank, 1) + ":0"; };
    lay_network(3, 2);
    network().drop(1, "ip saddr " + Network::address(2, 0));
    start_members(setting);
    for (const std::uint32_t rank : {1u, 2u}) {
      const std::string paths = value_of(member(rank).ask("paths"));
      EXPECT_TRUE(paths.starts_with("tcp tcp " + Network::address(rank, 1) + ":")) << paths;
    }
    const std::string paths = value_of(member(0).ask("paths"));
    EXPECT_EQ(paths,
              "tcp tcp " + Network::address(0, 1) + ":7701," + Network::address(0, 0) + ":7701")
        << "also where the others look for it";
    all_do("every 1000");
    stop();
  }
}

TEST_F(GroupOverNetworks, WithoutThePermissionToSpanHostsNobodyJoins) {
  lay_network(2);
  start_member(0, {.profile = "local", .environment = [](std::uint32_t) {
                     return Environment{{"MEMBER_PATIENCE_MS", "300"}};
                   }});
  EXPECT_TRUE(is_error(member(0).line(), "timeout", "plaintext")) << "it listens at loopback";
  start_member(0, {});
  start_member(1, {.profile = "local"});
  EXPECT_TRUE(is_error(member(2).line(), "permission_denied"));
}

TEST_F(GroupOverNetworks, LocalListensToNoOtherHost) {
  lay_network(2);
  start_member(0, {.profile = "local"});
  start_member(1, {.environment = [](std::uint32_t) {
                 return Environment{{"MEMBER_PATIENCE_MS", "1500"}};
               }});
  EXPECT_TRUE(is_error(member(1).line(), "timeout", "Connection refused"));
}

// The name of a host is a loopback address on that host, as Debian's installer writes it.
TEST_F(GroupOverNetworks, TheRendezvousMayBeLoopbackAtRank0) {
  for (const std::uint32_t members_per_host : {1u, 2u}) {
    SCOPED_TRACE(std::to_string(members_per_host) + " members on each host");
    lay_network(2);
    Setting setting{.members_per_host = members_per_host};
    if (members_per_host == 1) {
      setting.rendezvous = [](std::uint32_t rank) {
        return rank < 1 ? std::string("127.0.1.1") : Network::address(0);
      };
    } else {
      setting.rendezvous = [](std::uint32_t rank) {
        return rank < 2 ? std::string("127.0.1.1") : Network::address(0);
      };
    }
    start_members(setting);
    all_do("every 1000");
    stop();
  }
}

// The address of a Kubernetes Service, or of any other translation: rank 0 has no such interface.
TEST_F(GroupOverNetworks, TheRendezvousMayBeTranslatedToRank0) {
  for (const bool is_told : {false, true}) {
    SCOPED_TRACE(is_told ? "TENDON_LISTEN" : "nothing is told");
    lay_network(2);
    for (const std::uint32_t host : {0u, 1u})
      network().run(host, {"ip", "route", "add", "10.96.0.0/24", "dev", "net0"});
    network().run(1, {"nft",
                      "add table ip nat; add chain ip nat out { type nat hook output "
                      "priority -100; }; add rule ip nat out ip daddr 10.96.0.10 dnat to " +
                          Network::address(0)});
    Setting setting;
    setting.rendezvous = [](std::uint32_t) { return std::string("10.96.0.10"); };
    if (is_told) {
      setting.environment = [](std::uint32_t rank) {
        return Environment{{"TENDON_LISTEN", rank == 0 ? "0.0.0.0:7701" : "0.0.0.0:0"}};
      };
    }
    start_members(setting);
    const std::string paths = value_of(member(0).ask("paths"));
    EXPECT_EQ(paths, "tcp 0.0.0.0:7701");
    all_do("every 1000");
    stop();
  }
}

// Members that are told to listen at all addresses announce addresses where others find them.
TEST_F(GroupOverNetworks, AMemberThatListensAtAllAddressesIsFoundAtOneOfThem) {
  Setting setting{.networks = 2, .rendezvous_network = 1};
  setting.environment = [](std::uint32_t) { return Environment{{"TENDON_LISTEN", "0.0.0.0:0"}}; };
  start(3, setting);
  for (const std::uint32_t rank : {1u, 2u}) {
    const std::string paths = value_of(member(rank).ask("paths"));
    EXPECT_TRUE(paths.starts_with("tcp tcp " + Network::address(rank, 1) + ":")) << paths;
    EXPECT_EQ(paths.find("0.0.0.0"), std::string::npos) << paths;
  }
  all_do("every 1000");
}

// The address that leads to rank 0 leads to no other member.
TEST_F(GroupOverNetworks, EachAddressOfAMemberIsTriedInTurn) {
  lay_network(3, 2);
  network().drop(1, "ip saddr " + Network::address(2, 0));
  Setting setting{.networks = 2};
  setting.environment = [](std::uint32_t) { return Environment{{"TENDON_LISTEN", "0.0.0.0:0"}}; };
  start_members(setting);
  all_do("every 1000");
}

TEST_F(GroupOverNetworks, ALauncherThatSaysOneHostKeepsItToLoopback) {
  lay_network(2);
  Setting setting;
  setting.environment = [](std::uint32_t rank) {
    return Environment{{"RANK", std::to_string(rank)},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MEMBER_PATIENCE_MS", "1500"}};
  };
  for (const std::uint32_t rank : {0u, 1u}) start_member(rank, setting);
  EXPECT_TRUE(is_error(member(0).line(), "timeout", "LOCAL_WORLD_SIZE = WORLD_SIZE = 2"));
  EXPECT_TRUE(is_error(member(1).line(), "timeout", "Connection refused"));
}

/// The two ways in which a network becomes silent.
class Partition : public GroupOverNetworks, public testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] bool by_cable() const { return std::string(GetParam()) == "cable"; }
  void cut(std::uint32_t host) { by_cable() ? network().pull_cable(host) : network().drop(host); }
  void mend(std::uint32_t host) { by_cable() ? network().put_cable(host) : network().heal(host); }
};
INSTANTIATE_TEST_SUITE_P(Ways, Partition, testing::Values("cable", "packets"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(Partition, TheMajorityGoesOnAndTheMinorityDoesNot) {
  start(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) member(rank).tell("work 400000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(member(rank).line(), "ok working");
  cut(2);
  for (const std::uint32_t rank : {0u, 1u})
    EXPECT_TRUE(is_error(member(rank).line(), "peer_lost", "place 2"));
  EXPECT_TRUE(is_error(member(2).line(), "peer_lost", "place "));
  the_majority_goes_on();
  EXPECT_TRUE(is_error(member(2).ask("shrink none 5000"), "no_quorum"));

  mend(2);
  // The member is back, and nobody accepts its messages.
  member(2).tell("reduce 400000 2000");
  the_majority_is_right();
  EXPECT_TRUE(is_error(member(2).line(), "peer_lost"));
  const std::string alone = member(2).ask("shrink none 1000");
  EXPECT_TRUE(alone.starts_with("error ")) << alone;
  the_majority_is_right();
}

TEST_F(GroupOverNetworks, WhoCannotReachOneOfTheOthersHearsThatTheyWentOn) {
  // Only 1 and 2 lose each other. One of them stays, the lower if 0 hears both in time to choose,
  // and 0 tells the other.
  start(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) member(rank).tell("work 400000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(member(rank).line(), "ok working");
  network().drop(2, "ip saddr . ip daddr { " + Network::address(1) + " . " + Network::address(2) +
                        ", " + Network::address(2) + " . " + Network::address(1) + " }");
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(is_error(member(rank).line(), "peer_lost", "place "));
  for (std::uint32_t rank = 0; rank < 3; ++rank) member(rank).tell("shrink none 20000");
  EXPECT_EQ(member(0).line(), "ok 2");
  const std::string first = member(1).line();
  const std::string second = member(2).line();
  const std::uint32_t stays = first == "ok 2" ? 1 : 2;
  EXPECT_EQ(stays == 1 ? first : second, "ok 2");
  EXPECT_TRUE(is_error(stays == 1 ? second : first, "peer_lost", "without this member"));
  the_majority_is_right(stays);
  network().heal(2);
  EXPECT_TRUE(is_error(member(3 - stays).ask("reduce 1000 20000"), "peer_lost"));
  the_majority_is_right(stays);
}

TEST_F(GroupOverNetworks, ACutThatEndsBeforeTheLeaseLosesNothing) {
  start(3, {.lease_ms = "20000"});
  for (std::uint32_t rank = 0; rank < 3; ++rank) member(rank).tell("work 100000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(member(rank).line(), "ok working");
  for (const std::uint32_t host : {2u, 0u, 1u}) {
    network().drop(host);
    wait_until_it_hurts(host);
    network().heal(host);
  }
  member(1).tell("enough");
  const std::string rounds = member(0).line();
  EXPECT_TRUE(is_ok(rounds));
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_EQ(member(rank).line(), rounds);
  EXPECT_EQ(member(1).line(), "error unknown enough");
  all_do("every 40000");
}

TEST_F(GroupOverNetworks, ResultsAreRightWherePacketsAreLost) {
  start(3, {.lease_ms = "60000"});
  for (std::uint32_t host = 0; host < 3; ++host) network().drop(host, "numgen random mod 100 < 3");
  for (const std::string size : kSizes) all_do("every " + size);
  all_do("loop 10 200000");
  for (std::uint32_t host = 0; host < 3; ++host) wait_until_it_hurts(host);
}

}  // namespace
}  // namespace tendon::test
