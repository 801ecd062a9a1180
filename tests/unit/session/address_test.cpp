// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/session/address.hpp>
#include <tendon/session/limits.hpp>

namespace {

using tendon::Address;
using tendon::AddressKind;
using tendon::ErrorCode;
using testing::HasSubstr;

TEST(Address, ReadsHostsAndPorts) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& one :
       {Case{"127.0.0.1:7000", "127.0.0.1", 7000}, Case{"[::1]:7000", "::1", 7000},
        Case{"[fe80::1%eth0]:1", "fe80::1%eth0", 1},
        Case{"[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1},
        Case{"host.name:65535", "host.name", 65535}, Case{"localhost:0", "localhost", 0},
        Case{"a_b-c.d2:1", "a_b-c.d2", 1}, Case{"example.org.:80", "example.org.", 80}}) {
    SCOPED_TRACE(one.text);
    const auto address = Address::parse(one.text);
    ASSERT_TRUE(address) << address.error().detail;
    EXPECT_EQ(address->kind(), AddressKind::ip);
    EXPECT_EQ(address->host(), one.host);
    EXPECT_EQ(address->port(), one.port);
    EXPECT_EQ(address->path(), "");
    EXPECT_EQ(address->to_string(), one.text);
    EXPECT_EQ(Address::parse(address->to_string()).value(), *address);
  }
}

TEST(Address, ReadsUnixSockets) {
  for (const std::string text : {"unix:/run/x.sock", "unix:relative", "unix:@abstract"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address) << address.error().detail;
    EXPECT_EQ(address->kind(), AddressKind::unix_path);
    EXPECT_EQ(address->path(), text.substr(5));
    EXPECT_EQ(address->host(), "");
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(Address, NamesWhatIsWrongAndWhatIsLegal) {
  struct Case {
    std::string text;
    const char* fault;
  };
  for (const Case& one : {Case{"", "is empty"},
                          Case{"localhost", "has no port"},
                          Case{":7000", "has no host"},
                          Case{"localhost:", "0-65535"},
                          Case{"localhost:65536", "0-65535"},
                          Case{"localhost:-1", "0-65535"},
                          Case{"localhost:+1", "0-65535"},
                          Case{"localhost: 1", "0-65535"},
                          Case{"localhost:7x", "0-65535"},
                          Case{"::1:7000", "without brackets"},
                          Case{"a:1:2", "without brackets"},
                          Case{"[::1]", "no ']:'"},
                          Case{"[::1]7000", "no ']:'"},
                          Case{"[::1:7000", "no ']:'"},
                          Case{"[]:1", "no IPv6"},
                          Case{"[127.0.0.1]:1", "no IPv6"},
                          Case{"[::g]:1", "no IPv6"},
                          Case{"[::1%]:1", "no IPv6"},
                          Case{"[fe80::1%a b]:1", "no IPv6"},
                          Case{"127.1:1", "ends in a number"},
                          Case{"1.2.3.256:1", "ends in a number"},
                          Case{"1.2.3.4.:1", "ends in a number"},
                          Case{".:1", "empty label"},
                          Case{"*:1", "character"},
                          Case{"a b:1", "character"},
                          Case{"h\n:1", "character"},
                          Case{"tcp://a:1", "without brackets"},
                          Case{"a..b:1", "empty label"},
                          Case{"-a:1", "leading '-'"},
                          Case{"unix:", "no path"},
                          Case{"unix:@", "no path"},
                          Case{std::string("a\0b:1", 5), "zero byte"}}) {
    SCOPED_TRACE(one.text);
    const auto address = Address::parse(one.text);
    ASSERT_FALSE(address);
    EXPECT_EQ(address.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(address.error().detail, HasSubstr(one.fault));
    EXPECT_THAT(address.error().detail, HasSubstr("legal forms: 127.0.0.1:7000, [::1]:7000"));
    EXPECT_THAT(address.error().detail, testing::Not(HasSubstr("\n")));
  }
  EXPECT_THAT(Address::parse("nowhere").error().detail, HasSubstr("'nowhere'"));
}

TEST(Address, CapsAtTheLimitAndOneBeyond) {
  const std::string name(tendon::kMaxHostNameBytes, 'a');
  EXPECT_TRUE(Address::parse(name + ":1"));
  EXPECT_THAT(Address::parse(name + "a:1").error().detail, HasSubstr("253"));
  for (const std::string start : {"/", "@"}) {
    const std::string path = start + std::string(tendon::kMaxUnixPathBytes - 1, 'p');
    EXPECT_TRUE(Address::parse("unix:" + path));
    EXPECT_THAT(Address::parse("unix:" + path + "p").error().detail, HasSubstr("107"));
  }
}

TEST(Address, LongTextIsShownCut) {
  const auto address = Address::parse(std::string(100000, 'x'));
  ASSERT_FALSE(address);
  EXPECT_LT(address.error().detail.size(), 1000u);
}

TEST(Address, LoopbackLiterals) {
  for (const char* text : {"127.0.0.1:1", "127.255.0.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(Address::parse(text).value().is_loopback_literal()) << text;
  }
  for (const char* text : {"128.0.0.1:1", "0.0.0.0:1", "[::]:1", "[::2]:1", "[::ffff:10.0.0.1]:1",
                           "localhost:1", "unix:/x"}) {
    EXPECT_FALSE(Address::parse(text).value().is_loopback_literal()) << text;
  }
  EXPECT_FALSE(Address().is_loopback_literal());
}

TEST(Address, NothingIsEmpty) {
  EXPECT_EQ(Address().to_string(), "");
  EXPECT_EQ(Address(), Address());
}

}  // namespace
