// SPDX-License-Identifier: Apache-2.0
// The lines that a node logs of its events.
#include "fabric/samples/event_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/observe/log.hpp>
#include <vector>

namespace tendon::test {
namespace {

using detail::EventLog;
using detail::LinePace;
using testing::HasSubstr;
using testing::StartsWith;

/// Collects lines as stderr would have them.
class Lines {
 public:
  Lines() {
    set_log_callback(LogLevel::info, [this](const LogLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back("tendon " + std::string(to_string(line.level)) + " [" +
                       std::string(line.where) + "] " + std::string(line.text));
    });
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines() { set_log_callback(LogLevel::warn, {}); }
  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

DialAttempt attempt(const std::string& address, ErrorCode code, const std::string& detail) {
  return {address, Error{code, "connect", detail}.message()};
}

FabricEvent unreachable(const std::string& key, std::vector<DialAttempt> tried) {
  FabricEvent event{
      .kind = FabricEventKind::unreachable, .key = key, .node = "vision", .reason = {}};
  event.reason = detail::kAnnouncedNotReached;
  for (const DialAttempt& each : tried) event.reason += "; " + each.address + ": " + each.error;
  event.tried = std::move(tried);
  return event;
}

TEST(EventLog, HasOneShortLineOfANodeHoweverManyTopicsItHas) {
  const Lines lines;
  EventLog log;
  const std::vector<DialAttempt> tried{
      attempt("unix:/run/user/1000/tendon/" + std::string(32, 'a') + ".node",
              ErrorCode::unreachable, "nobody listens there: " + std::string(100, 'x')),
      attempt("10.0.0.9:7450", ErrorCode::timeout, std::string(300, 'y'))};
  for (int n = 0; n < 1000; ++n) log.note(unreachable("camera/" + std::to_string(n), tried));
  ASSERT_EQ(lines.all().size(), 1U);
  EXPECT_THAT(lines.all()[0],
              StartsWith("tendon warn [node.event] unreachable: vision on camera/0: "
                         "found, and not reached: unix:/run/user/"));
  EXPECT_LE(lines.all()[0].size(), LinePace::kMostLineBytes);
  auto other = unreachable("camera/0", tried);
  other.node = "motor";
  log.note(other);
  EXPECT_EQ(lines.all().size(), 2U);
}

TEST(EventLog, HasEachUsualEventAndEachCause) {
  const Lines lines;
  EventLog log;
  for (int n = 0; n < 3; ++n) {
    log.note({.kind = FabricEventKind::gap, .key = "a", .node = "vision", .reason = "1-2"});
    log.note({.kind = FabricEventKind::lagging,
              .key = "a",
              .node = "motor",
              .reason = "sample " + std::to_string(n) + " waited for it"});
  }
  ASSERT_EQ(lines.all().size(), 4U);
  EXPECT_THAT(lines.all()[0], StartsWith("tendon info [node.event] gap: "));
  EXPECT_THAT(lines.all()[1], StartsWith("tendon warn [node.event] lagging: motor on a: sample 0"));
}

TEST(WhyNot, NamesARefusalBeforeAnAddressWhereNobodyAnswered) {
  const auto silent = attempt("10.0.0.9:1", ErrorCode::timeout, "nobody answered");
  const auto refused =
      attempt("10.0.0.9:2", ErrorCode::permission_denied, "profile 'local' needs this user");
  EXPECT_EQ(detail::why_not({silent, refused}),
            "found, and refused because 10.0.0.9:2: " + error_id(ErrorCode::permission_denied) +
                " permission denied: profile 'local' needs this user [connect]");
  EXPECT_THAT(detail::why_not({silent}), StartsWith("found, and not reached: 10.0.0.9:1: "));
}

TEST(WhyNot, SaysWhatAnEventWithoutAttemptsSays) {
  FabricEvent event = unreachable("a", {});
  event.reason += ": a link has at most 1024 pipes";
  EXPECT_EQ(detail::why_not(event), "found, and not reached: a link has at most 1024 pipes");
  event.reason = std::string(detail::kAnnouncedNotConnected) + ": limit_exceeded: 16384 pipes";
  EXPECT_EQ(detail::why_not(event), "found, and not connected: limit_exceeded: 16384 pipes");
  event.kind = FabricEventKind::schema_mismatch;
  event.reason = "another shape";
  EXPECT_EQ(detail::why_not(event), "found, and refused because another shape");
}

}  // namespace
}  // namespace tendon::test
