// SPDX-License-Identifier: Apache-2.0
#include "session/interfaces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::announceable_hosts;
using detail::InterfaceAddress;
using detail::Route;
using testing::ElementsAre;
using testing::IsEmpty;

InterfaceAddress at(const std::string& interface, const std::string& host) {
  return {.interface = interface, .host = host, .is_up = true};
}

TEST(Interfaces, ThoseOfADefaultRouteComeFirst) {
  const std::vector<InterfaceAddress> addresses = {at("eth0", "192.168.0.2"),
                                                   at("eth1", "10.0.0.2"), at("wlan0", "10.1.0.2")};
  EXPECT_THAT(
      announceable_hosts(
          addresses,
          {{"eth0", false, 0}, {"eth1", true, 200}, {"eth1", false, 0}, {"wlan0", true, 100}}),
      ElementsAre("10.1.0.2", "10.0.0.2", "192.168.0.2"));
}

// Container engines use one address for the bridges of all hosts.
TEST(Interfaces, BridgesComeLast) {
  InterfaceAddress docker = at("docker0", "172.17.0.1");
  docker.is_bridge = true;
  InterfaceAddress lan = at("br0", "10.0.0.2");
  lan.is_bridge = true;
  EXPECT_THAT(announceable_hosts({docker, at("eth1", "192.168.0.2"), lan},
                                 {{"docker0", false, 0}, {"eth1", false, 500}, {"br0", true, 0}}),
              ElementsAre("10.0.0.2", "192.168.0.2", "172.17.0.1"));
}

TEST(Interfaces, WhatOthersCannotDialIsLeftOut) {
  InterfaceAddress down = at("eth0", "10.0.0.2");
  down.is_up = false;
  InterfaceAddress loopback = at("lo", "127.0.0.1");
  loopback.is_local = true;
  const InterfaceAddress without_route = at("eth1", "10.0.1.2");
  const std::vector<Route> routes = {{"eth0", true, 0}, {"lo", false, 0}};
  EXPECT_THAT(announceable_hosts({down, loopback, without_route}, routes), IsEmpty());
  EXPECT_THAT(announceable_hosts({at("eth0", "10.0.0.2"), at("eth0", "10.0.0.2")}, routes),
              ElementsAre("10.0.0.2"))
      << "each once";
}

TEST(Interfaces, RoutesAreReadAsTheKernelTellsThem) {
  const auto four = detail::parse_ipv4_routes(
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth0\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
      "eth0\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
      "*\t0000FEA9\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
      "eth1\t0003000A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
      "broken\n");
  ASSERT_EQ(four.size(), 2u);
  EXPECT_EQ(four[0].interface, "eth0");
  EXPECT_TRUE(four[0].is_default);
  EXPECT_EQ(four[0].metric, 100u);
  EXPECT_FALSE(four[1].is_default);

  const std::string zero(32, '0');
  const auto six = detail::parse_ipv6_routes(
      "fd000000000000000000000000000000 40 " + zero + " 00 " + zero +
      " 00000100 00000001 00000000 00000001     eth0\n"
      "fe800000000000000000000000000000 40 " +
      zero + " 00 " + zero + " 00000100 00000002 00000000 00000001     eth1\n" + zero + " 00 " +
      zero + " 00 fd000000000000000000000000000001" +
      " 00000400 00000003 00000000 00000003     eth0\n" + zero + " 00 " + zero + " 00 " + zero +
      " ffffffff 00000001 00000000 00200200       lo\n");
  ASSERT_EQ(six.size(), 2u);
  EXPECT_FALSE(six[0].is_default);
  EXPECT_TRUE(six[1].is_default);
  EXPECT_EQ(six[1].metric, 0x400u);
}

TEST(Interfaces, OfThisHostAreAddresses) {
  const auto hosts = announceable_hosts(AF_INET);
  ASSERT_TRUE(succeeds(hosts));
  for (const std::string& host : *hosts) EXPECT_FALSE(host.starts_with("127.")) << host;
}

}  // namespace
}  // namespace tendon::test
