// SPDX-License-Identifier: Apache-2.0
// The brain of full size runs for some seconds: 24 processes lose nothing. `make bench` measures
// their speed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "fabric/zenoh/zenoh_session.hpp"
#include "process/command.hpp"

namespace tendon::test {
namespace {

using Json = nlohmann::json;

class FullSizeBrain : public testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Ways, FullSizeBrain,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::Values("static", "zenoh")),
                         [](const auto& tested) {
                           return std::get<0>(tested.param) + "_" + std::get<1>(tested.param);
                         });

TEST_P(FullSizeBrain, LosesNothing) {
  const auto& [path, discovery] = GetParam();
  if (discovery == "zenoh" && !detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
  const Ended ended = run_processes(
      {"fabric", "--seconds", "4", "--path", path, "--discovery", discovery, "--json"});
  ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
  const Json results = Json::parse(ended.out).at("results");
  ASSERT_EQ(results.size(), 1u);
  const Json& row = results[0];
  EXPECT_EQ(row.at("path"), path);
  EXPECT_EQ(row.at("nodes"), 24);
  // In four seconds, 225 maps a second arrive at eight nodes each, and 240 heartbeats at one.
  EXPECT_EQ(row.at("published"), 4 * (225 * 8 + 240));
  EXPECT_EQ(row.at("received"), row.at("published"));
  EXPECT_EQ(row.at("lost"), 0);
  EXPECT_EQ(row.at("repeated"), 0);
  EXPECT_GT(row.at("cpu_percent_max").get<double>(), 0);
  EXPECT_GT(row.at("rss_mb_min").get<double>(), 0);
}

}  // namespace
}  // namespace tendon::test
