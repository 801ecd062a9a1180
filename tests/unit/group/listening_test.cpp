// SPDX-License-Identifier: Apache-2.0
#include "group/membership/listening.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "group/membership/launcher.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::Listening;
using detail::ListenWish;
using detail::OwnAddresses;
using detail::Resolved;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Found = std::vector<std::string>;

/// An address that resolves to the hosts `found`.
Resolved stands_for(const std::string& text, const Found& found) {
  Resolved resolved{Address::parse(text).value(), {}};
  for (const std::string& host : found) {
    const auto one = Address::parse(host + ":" + std::to_string(resolved.address.port())).value();
    resolved.found.push_back(
        detail::resolve(one, Deadline::now(), detail::ResolveFor::bind).value().front());
  }
  return resolved;
}
Resolved literal(const std::string& text) {
  const std::string host = text.substr(0, text.rfind(':'));
  return stands_for(text, {host});
}

/// A host with loopback and these addresses.
OwnAddresses host_with(const Found& hosts) {
  OwnAddresses own;
  own.interfaces = {{.interface = "lo", .host = "127.0.0.1", .is_up = true, .is_local = true},
                    {.interface = "lo", .host = "[::1]", .is_up = true, .is_local = true},
                    {.interface = "eth0", .host = "[fe80::1]", .is_up = true, .is_local = true}};
  for (const std::string& host : hosts)
    own.interfaces.push_back({.interface = "eth0", .host = host, .is_up = true});
  return own;
}

ListenWish plaintext() {
  ListenWish wish;
  wish.profile = Profile::plaintext;
  return wish;
}
ListenWish told(const std::string& address) {
  ListenWish wish = plaintext();
  wish.told = literal(address);
  wish.told_by = "TENDON_LISTEN";
  return wish;
}

class Rank0 : public testing::Test {
 protected:
  static Listening at(const ListenWish& wish, const std::optional<Resolved>& rendezvous) {
    auto found = listening_of_rank0(wish, rendezvous, host_with({"10.0.0.1", "10.1.0.1"}));
    EXPECT_TRUE(succeeds(found));
    return found ? *std::move(found) : Listening();
  }
};

TEST_F(Rank0, ListensWhereTheRendezvousIsIfAnInterfaceHasIt) {
  for (const Resolved& rendezvous :
       {literal("10.0.0.1:29500"), stands_for("node0:29500", {"10.0.0.1"}),
        stands_for("node0:29500", {"127.0.1.1", "10.0.0.1"}),
        stands_for("node0:29500", {"10.9.9.9", "10.0.0.1"})}) {
    const Listening found = at(plaintext(), rendezvous);
    EXPECT_THAT(found.addresses, ElementsAre("10.0.0.1:29500"));
    EXPECT_THAT(found.why_all, IsEmpty());
  }
}

// The resolvers of other hosts may know only one of them.
TEST_F(Rank0, ListensAtEachAddressThatTheNameHasHere) {
  const auto own = host_with({"10.0.0.1", "[2001:db8::1]"});
  const auto found = listening_of_rank0(
      plaintext(), stands_for("node0:29500", {"[2001:db8::1]", "127.0.1.1", "10.0.0.1"}), own);
  ASSERT_TRUE(succeeds(found));
  EXPECT_THAT(found->addresses, ElementsAre("[2001:db8::1]:29500", "10.0.0.1:29500"));
}

TEST_F(Rank0, ListensAtAllAddressesOfAPlaintextGroupThatNamesNoneOfThem) {
  for (const Resolved& rendezvous :
       {stands_for("node0:29500", {"127.0.1.1"}), literal("127.0.0.1:29500"),
        literal("10.96.0.10:29500"), stands_for("service:29500", {})}) {
    const Listening found = at(plaintext(), rendezvous);
    EXPECT_THAT(found.addresses, ElementsAre("0.0.0.0:29500"));
    const std::string line = detail::all_addresses_line("rank 0", found.addresses, found.why_all);
    EXPECT_THAT(line, HasSubstr("rank 0 listens at all addresses of this host (0.0.0.0:29500)"));
    EXPECT_THAT(line, HasSubstr(rendezvous.address.to_string()));
    EXPECT_THAT(line, HasSubstr("TENDON_LISTEN"));
  }
  const Listening through_store = at(plaintext(), {});
  EXPECT_THAT(through_store.addresses, ElementsAre("0.0.0.0:0"));
  EXPECT_THAT(through_store.why_all, HasSubstr("store"));
  EXPECT_THAT(at(plaintext(), literal("0.0.0.0:29500")).why_all, IsEmpty()) << "asked for by name";
}

TEST_F(Rank0, ListensAtAllAddressesOfBothFamilies) {
  const Resolved name = stands_for("node0:29500", {"127.0.1.1"});
  OwnAddresses own = host_with({"10.0.0.1", "[2001:db8::1]"});
  EXPECT_THAT(listening_of_rank0(plaintext(), name, own).value().addresses,
              ElementsAre("[::]:29500"));
  own.ipv6_takes_ipv4 = false;
  EXPECT_THAT(listening_of_rank0(plaintext(), name, own).value().addresses,
              ElementsAre("0.0.0.0:29500", "[::]:29500"));
  EXPECT_THAT(
      listening_of_rank0(plaintext(), literal("[2001:db8::9]:1"), host_with({})).value().addresses,
      ElementsAre("[::]:1"));
}

TEST_F(Rank0, ListensAtLoopbackInProfileLocal) {
  const ListenWish local;
  for (const std::string text : {"10.0.0.1:29500", "10.96.0.10:29500", "0.0.0.0:29500"}) {
    const Listening found = at(local, literal(text));
    EXPECT_THAT(found.addresses, ElementsAre("127.0.0.1:29500")) << text;
    EXPECT_THAT(found.why_all, IsEmpty());
    EXPECT_THAT(found.hint, HasSubstr("'plaintext' by name"));
  }
  EXPECT_THAT(at(local, stands_for("node0:29500", {"127.0.1.1"})).addresses,
              ElementsAre("127.0.1.1:29500"));
  EXPECT_THAT(at(local, literal("[::1]:29500")).addresses, ElementsAre("[::1]:29500"));
  EXPECT_THAT(at(local, literal("127.0.0.1:29500")).hint, IsEmpty());
  EXPECT_THAT(at(local, {}).addresses, ElementsAre("127.0.0.1:0")) << "through a store";
}

TEST_F(Rank0, ListensAtLoopbackWhereTheLauncherSaysThatAllAreHere) {
  ListenWish wish = plaintext();
  wish.one_host = "LOCAL_WORLD_SIZE = WORLD_SIZE = 2";
  for (const auto& rendezvous :
       {std::optional(literal("10.0.0.1:29500")), std::optional(literal("10.96.0.10:29500"))}) {
    const Listening found = at(wish, rendezvous);
    EXPECT_THAT(found.addresses, ElementsAre("127.0.0.1:29500"));
    EXPECT_THAT(found.why_all, IsEmpty());
    EXPECT_THAT(found.hint, HasSubstr("LOCAL_WORLD_SIZE = WORLD_SIZE = 2"));
  }
  EXPECT_THAT(at(wish, {}).addresses, ElementsAre("127.0.0.1:0"));
  wish.told = literal("10.1.0.1:0");
  EXPECT_THAT(at(wish, literal("10.96.0.10:29500")).addresses, ElementsAre("10.1.0.1:29500"));
}

TEST_F(Rank0, ListensWhereItIsToldAtThePortOfTheRendezvous) {
  for (const std::string text : {"10.1.0.1:0", "10.1.0.1:29500", "10.1.0.1:7000"}) {
    const Listening found = at(told(text), literal("10.96.0.10:29500"));
    EXPECT_THAT(found.addresses, ElementsAre("10.1.0.1:29500")) << text;
    EXPECT_THAT(found.why_all, IsEmpty());
  }
  EXPECT_THAT(at(told("0.0.0.0:29500"), literal("10.0.0.1:29500")).addresses,
              ElementsAre("0.0.0.0:29500"));
  EXPECT_THAT(at(told("10.1.0.1:7000"), {}).addresses, ElementsAre("10.1.0.1:7000"))
      << "through a store";
  EXPECT_THAT(at(told("10.9.9.9:7000"), {}).addresses, ElementsAre("10.9.9.9:7000"))
      << "binding says what is wrong with it";
}

TEST_F(Rank0, AlsoListensWhereOthersLookForItOnThisHost) {
  EXPECT_THAT(at(told("10.1.0.1:0"), literal("10.0.0.1:29500")).addresses,
              ElementsAre("10.1.0.1:29500", "10.0.0.1:29500"));
  EXPECT_THAT(at(told("10.0.0.1:0"), literal("10.0.0.1:29500")).addresses,
              ElementsAre("10.0.0.1:29500"));
  const Listening kept_in = at(told("127.0.0.1:0"), literal("10.0.0.1:29500"));
  EXPECT_THAT(kept_in.addresses, ElementsAre("127.0.0.1:29500")) << "asked for";
  EXPECT_THAT(kept_in.hint, HasSubstr("not at 10.0.0.1:29500"));
}

TEST_F(Rank0, ListensAtTheSocketThatIsTheRendezvous) {
  EXPECT_THAT(at(told("10.1.0.1:0"), Resolved{Address::parse("unix:@job").value(), {}}).addresses,
              ElementsAre("unix:@job"));
  ListenWish wish = plaintext();
  wish.told = Resolved{Address::parse("unix:@job").value(), {}};
  wish.told_by = "TENDON_LISTEN";
  EXPECT_THAT(at(wish, {}).addresses, ElementsAre("unix:@job"));
  EXPECT_TRUE(fails_with(listening_of_rank0(wish, literal("10.0.0.1:29500"), host_with({})),
                         ErrorCode::invalid_argument, "TENDON_LISTEN is 'unix:@job'"));
}

TEST(Member, ListensWhereItIsTold) {
  EXPECT_THAT(listening_of_member(told("10.1.0.2:0"), "10.0.0.2", host_with({})).addresses,
              ElementsAre("10.1.0.2:0"));
}

TEST(Member, ListensAtTheInterfaceThatLedToRank0) {
  const Listening found = listening_of_member(plaintext(), "10.0.0.2", host_with({"10.0.0.2"}));
  EXPECT_THAT(found.addresses, ElementsAre("10.0.0.2:0"));
  EXPECT_THAT(found.why_all, IsEmpty());
}

TEST(Member, ThatSharesAHostWithRank0IsReachedFromOthers) {
  const Listening found = listening_of_member(plaintext(), "127.0.0.1", host_with({"10.0.0.2"}));
  EXPECT_THAT(found.addresses, ElementsAre("0.0.0.0:0"));
  EXPECT_THAT(found.why_all, HasSubstr("shares a host with rank 0"));
  ListenWish kept_in = plaintext();
  kept_in.one_host = "LOCAL_WORLD_SIZE = WORLD_SIZE = 2";
  for (const ListenWish& wish : {ListenWish(), kept_in}) {
    const Listening alone = listening_of_member(wish, "127.0.1.1", host_with({"10.0.0.2"}));
    EXPECT_THAT(alone.addresses, ElementsAre("127.0.1.1:0"));
    EXPECT_THAT(alone.why_all, IsEmpty());
  }
}

TEST(AddressesForOthers, AreThoseOfTheInterfaceThatLeadsToThemFirst) {
  const detail::DialableHosts hosts{{"10.0.0.1", "10.1.0.1", "10.2.0.1", "10.3.0.1", "172.17.0.1"},
                                    {"10.0.0.1", "[2001:db8::1]"}};
  const auto of = [&](const Found& bound, const std::string& first) {
    return addresses_for_others(bound, first, hosts);
  };
  EXPECT_THAT(of({"0.0.0.0:7"}, "10.2.0.1"),
              ElementsAre("10.2.0.1:7", "10.0.0.1:7", "10.1.0.1:7", "10.3.0.1:7"));
  EXPECT_THAT(of({"[::]:7"}, "[2001:db8::1]"), ElementsAre("[2001:db8::1]:7", "10.0.0.1:7"));
  EXPECT_THAT(of({"0.0.0.0:7", "[::]:8"}, "10.9.0.1").front(), "10.9.0.1:7");
  // No other host can use these addresses.
  for (const std::string first : {"", "127.0.0.1", "[::1]", "0.0.0.0", "[fe80::1%eth0]"})
    EXPECT_EQ(of({"0.0.0.0:7"}, first).front(), "10.0.0.1:7") << first;
  EXPECT_EQ(of({"0.0.0.0:7"}, "[2001:db8::1]").front(), "10.0.0.1:7") << "another family";
  EXPECT_THAT(of({"10.1.0.1:7"}, "10.2.0.1"), ElementsAre("10.1.0.1:7"));
  EXPECT_THAT(of({"unix:@a,b"}, ""), ElementsAre("unix:@a,b"));
}

TEST(AddressesForOthers, AreLoopbackOnlyWhereThereIsNoOther) {
  const auto alone = [](const Found& bound) { return detail::addresses_for_others(bound, "", {}); };
  EXPECT_THAT(alone({"0.0.0.0:7"}), ElementsAre("127.0.0.1:7"));
  EXPECT_THAT(alone({"[::]:7"}), ElementsAre("[::1]:7"));
  EXPECT_THAT(alone({"127.0.0.1:7"}), ElementsAre("127.0.0.1:7"));
  EXPECT_THAT(alone({"127.0.0.1:7", "10.0.0.1:7"}), ElementsAre("10.0.0.1:7"));
}

TEST(PlacesOfRank0, AreLoopbackFirstWhereItMustBeOnThisHost) {
  const ListenWish local;
  EXPECT_THAT(places_of_rank0(local, literal("10.0.0.1:7")),
              ElementsAre("127.0.0.1:7", "10.0.0.1:7"));
  EXPECT_THAT(places_of_rank0(local, stands_for("node0:7", {"127.0.1.1"})), ElementsAre("node0:7"));
  EXPECT_THAT(places_of_rank0(local, stands_for("node0:7", {})),
              ElementsAre("127.0.0.1:7", "node0:7"));
  EXPECT_THAT(places_of_rank0(local, Resolved{Address::parse("unix:@job").value(), {}}),
              ElementsAre("unix:@job"));
  EXPECT_THAT(places_of_rank0(plaintext(), literal("10.0.0.1:7")), ElementsAre("10.0.0.1:7"));
  ListenWish wish = plaintext();
  wish.one_host = "SLURM_STEP_NUM_NODES = 1";
  EXPECT_THAT(places_of_rank0(wish, literal("10.0.0.1:7")),
              ElementsAre("127.0.0.1:7", "10.0.0.1:7"));
}

TEST(AddressesAsText, AreReadAsTheyWereWritten) {
  const Found addresses{"10.0.0.1:7", "[2001:db8::1]:7"};
  EXPECT_EQ(detail::join_addresses(addresses), "10.0.0.1:7,[2001:db8::1]:7");
  EXPECT_EQ(detail::split_addresses("10.0.0.1:7,[2001:db8::1]:7"), addresses);
  EXPECT_EQ(detail::split_addresses(" 10.0.0.1:7, [2001:db8::1]:7\n10.0.0.1:7,"), addresses);
  EXPECT_THAT(detail::split_addresses("unix:/a b,c"), ElementsAre("unix:/a b,c"));
  EXPECT_THAT(detail::split_addresses(", ,"), IsEmpty());
  EXPECT_THAT(detail::split_addresses("a:1,b:1,c:1,d:1,e:1"),
              ElementsAre("a:1", "b:1", "c:1", "d:1"));
}

TEST(Launcher, SaysThatAllAreOnThisHost) {
  using Environment = std::map<std::string, std::string>;
  const auto says = [](const Environment& environment, std::uint32_t size) {
    return detail::all_on_this_host(
        [&](const char* name) -> std::optional<std::string> {
          const auto found = environment.find(name);
          if (found == environment.end()) return {};
          return found->second;
        },
        size);
  };
  const Environment torchrun{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}};
  EXPECT_EQ(says(torchrun, 4), "LOCAL_WORLD_SIZE = WORLD_SIZE = 4");
  EXPECT_FALSE(says(torchrun, 8)) << "of a group that is not the job";
  EXPECT_FALSE(says({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}, 4));
  EXPECT_FALSE(says({{"RANK", "0"}, {"WORLD_SIZE", "4"}}, 4));
  EXPECT_FALSE(says({}, 4));
  EXPECT_TRUE(says({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                   2));
  EXPECT_TRUE(says({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}, 2));
  Environment srun{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_NODES", "1"}};
  EXPECT_TRUE(says(srun, 2));
  // One launcher inside another: the inner one knows its processes.
  srun["RANK"] = "1";
  srun["WORLD_SIZE"] = "2";
  srun["LOCAL_WORLD_SIZE"] = "1";
  EXPECT_FALSE(says(srun, 2));
}

}  // namespace
}  // namespace tendon::test
