// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/asker_rates.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::AskerRates;

ContextId asker(std::uint64_t number) {
  ContextId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  return id;
}

TEST(AskerRates, ServeEachSoOftenInASecond) {
  AskerRates rates(4);
  const AskerRates::Time begin{10s};
  for (int n = 0; n < 4; ++n) EXPECT_TRUE(rates.may_serve(asker(1), begin + n * 100ms));
  EXPECT_FALSE(rates.may_serve(asker(1), begin + 999ms));
  EXPECT_TRUE(rates.may_serve(asker(2), begin + 999ms)) << "another has its own";
  EXPECT_TRUE(rates.may_serve(asker(1), begin + 1s));
  AskerRates once(1);
  EXPECT_TRUE(once.may_serve(asker(1), begin));
  EXPECT_FALSE(once.may_serve(asker(1), begin));
}

TEST(AskerRates, RememberSoManyAskers) {
  AskerRates rates(1);
  const AskerRates::Time begin{10s};
  for (std::uint64_t n = 1; n <= AskerRates::kMostAskers; ++n)
    EXPECT_TRUE(rates.may_serve(asker(n), begin + std::chrono::microseconds(n)));
  const auto now = begin + 500ms;
  EXPECT_FALSE(rates.may_serve(asker(1), now));
  EXPECT_TRUE(rates.may_serve(asker(AskerRates::kMostAskers + 1), now));
  EXPECT_TRUE(rates.may_serve(asker(1), now)) << "the oldest was forgotten";
  EXPECT_FALSE(rates.may_serve(asker(AskerRates::kMostAskers), now));
}

}  // namespace
}  // namespace tendon::test
