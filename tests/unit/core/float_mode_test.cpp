// SPDX-License-Identifier: Apache-2.0
#include "core/float_mode.hpp"

#include <fenv.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/program_float_mode.hpp"

namespace tendon::test {
namespace {

// Not inlined, and computed from values that the compiler does not know.
[[gnu::noinline]] double divide(double dividend, double divisor) {
  const volatile double a = dividend;
  const volatile double b = divisor;
  return a / b;
}

constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
constexpr double kLeastNormal = std::numeric_limits<double>::min();

TEST(FloatMode, TheProgramsModeDoesNotCountWhileItLives) {
  const double upward = [] {
    const ProgramFloatMode program(ProgramFloatMode::Kind::upward);
    return divide(1.0, 3.0);
  }();
  const ProgramFloatMode program(ProgramFloatMode::Kind::upward);
  {
    const detail::DefaultFloatMode mode;
    EXPECT_LT(divide(1.0, 3.0), upward);
  }
  EXPECT_EQ(divide(1.0, 3.0), upward) << "the program's own is back";
}

TEST(FloatMode, SmallNumbersAreKeptWhileItLives) {
  const ProgramFloatMode program(ProgramFloatMode::Kind::flush_to_zero);
  const auto is_zero = [](double value) { return divide(value, 1.0) * 0x1p52 == 0.0; };
  EXPECT_TRUE(is_zero(kSmallest)) << "this machine has no such mode";
  {
    const detail::DefaultFloatMode mode;
    EXPECT_FALSE(is_zero(kSmallest));
    EXPECT_GT(divide(kLeastNormal, 4.0), 0.0);
  }
  EXPECT_TRUE(is_zero(kSmallest));
}

TEST(FloatMode, NoSignalIsRaisedAndTheProgramsExceptionsStay) {
  const ProgramFloatMode program(ProgramFloatMode::Kind::raising);
  feclearexcept(FE_ALL_EXCEPT);
  {
    const detail::DefaultFloatMode mode;
    EXPECT_EQ(divide(1.0, 0.0), std::numeric_limits<double>::infinity());
  }
  EXPECT_EQ(fetestexcept(FE_DIVBYZERO), 0);
}

}  // namespace
}  // namespace tendon::test
