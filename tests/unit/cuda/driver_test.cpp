// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/library_choice.hpp"
#include "support/child.hpp"
#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::v0::detail::cuda {
namespace {

using test::CudaDouble;
using test::exited_with;
using test::fails_with;
using test::run_in_child;
using test::succeeds;
using test::Variable;

TEST(Driver, LoadingCallsNothing) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE);
  ASSERT_TRUE(succeeds(driver));
  EXPECT_EQ((*driver)->library(), TENDON_CUDA_DOUBLE);
  EXPECT_EQ(fake.calls(nullptr), 0U);
  EXPECT_FALSE((*driver)->is_in_use());
  EXPECT_EQ(fake.calls("cuInit"), 0U);
  EXPECT_EQ(fake.calls(nullptr), 1U) << "is_in_use() asks how many devices there are";
}

TEST(Driver, IsInitialisedOnce) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  ASSERT_TRUE(succeeds(driver->initialise()));
  EXPECT_TRUE(driver->is_in_use());
  ASSERT_TRUE(succeeds(driver->initialise()));
  EXPECT_EQ(fake.calls("cuInit"), 1U);
  EXPECT_EQ(fake.calls("cuDriverGetVersion"), 1U);
}

TEST(Driver, ThatIsNotThereIsNamed) {
  const auto driver = Driver::load("libtendon_no_such_driver.so.1");
  EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "libtendon_no_such_driver.so.1"));
  EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "TENDON_CUDA_LIBRARY"));
}

TEST(Driver, AnotherLibraryIsNoDriver) {
  const auto driver = Driver::load("libm.so.6");
  EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "libm.so.6"));
  EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "cuInit"));
}

TEST(Driver, AMissingFunctionIsNamed) {
  const CudaDouble fake;
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters)                                  \
  {                                                                                               \
    const Variable missing("TENDON_CUDA_DOUBLE_MISSING", #exported);                              \
    const auto driver = Driver::load(TENDON_CUDA_DOUBLE);                                         \
    if ((since) > kOldestDriver) {                                                                \
      ASSERT_TRUE(succeeds(driver)) << #exported;                                                 \
      EXPECT_EQ((*driver)->table().field, nullptr);                                               \
    } else {                                                                                      \
      EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "no function " #exported ","));    \
      EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, TENDON_CUDA_DOUBLE)) << #exported; \
      EXPECT_TRUE(fails_with(driver, ErrorCode::not_supported, "12.0")) << #exported;             \
    }                                                                                             \
  }
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  EXPECT_NE(Driver::load(TENDON_CUDA_DOUBLE).value()->table().copy_batch_async, nullptr);
}

TEST(Driver, ThatIsTooOldIsNotInitialised) {
  const Variable version("TENDON_CUDA_DOUBLE_VERSION", "11080");
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  const auto initialised = driver->initialise();
  EXPECT_TRUE(fails_with(initialised, ErrorCode::not_supported, "11.8"));
  EXPECT_TRUE(fails_with(initialised, ErrorCode::not_supported, "12.0"));
  EXPECT_TRUE(fails_with(initialised, ErrorCode::not_supported, TENDON_CUDA_DOUBLE));
  EXPECT_EQ(fake.calls("cuInit"), 0U);
}

TEST(Driver, TheOldestThatWorks) {
  const Variable version("TENDON_CUDA_DOUBLE_VERSION", "12000");
  const CudaDouble fake;
  EXPECT_TRUE(succeeds(Driver::load(TENDON_CUDA_DOUBLE).value()->initialise()));
}

TEST(Driver, WithoutADeviceSaysSoAndIsAskedAgain) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  fake.fail("cuInit", 100, 1);
  EXPECT_TRUE(fails_with(driver->initialise(), ErrorCode::unsupported_device,
                         "CUDA_ERROR_NO_DEVICE (100, no CUDA-capable device is detected)"));
  EXPECT_TRUE(succeeds(driver->initialise()));
}

TEST(Driver, OneThatCannotBeginHasLostNoContext) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  fake.fail("cuInit", 999, 1);
  EXPECT_TRUE(fails_with(driver->initialise(), ErrorCode::unsupported_device,
                         "nvidia-smi shows whether its kernel modules are loaded"));
  EXPECT_TRUE(succeeds(driver->initialise()));
}

TEST(Driver, AChildOfAProcessThatUsesItGetsForked) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  ASSERT_TRUE(succeeds(driver->initialise()));
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    if (driver->is_in_use()) return 1;
    const auto initialised = driver->initialise();
    if (initialised.has_value() || initialised.error().code != ErrorCode::forked) return 2;
    return fake.calls(nullptr) == before ? 0 : 3;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Driver, AChildMayUseWhatItsParentOnlyLoaded) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  const int status = run_in_child([&] { return driver->initialise().has_value() ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Driver, ForkedAfterAnotherLibraryUsedItSaysWhatToDo) {
  const CudaDouble fake;
  ASSERT_TRUE(succeeds(Driver::load(TENDON_CUDA_DOUBLE).value()->initialise()));
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  const int status = run_in_child([&] {
    const auto initialised = driver->initialise();
    if (initialised.has_value()) return 1;
    return initialised.error().detail.find("fork before") == std::string::npos ? 2 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(LibraryChoice, IsThatOfTheEnvironment) {
  const Variable unset("TENDON_CUDA", nullptr);
  const Variable no_library("TENDON_CUDA_LIBRARY", nullptr);
  EXPECT_EQ(chosen_library().value(), "libcuda.so.1");
  const Variable empty("TENDON_CUDA", "");
  EXPECT_EQ(chosen_library().value(), "libcuda.so.1");
  const Variable library("TENDON_CUDA_LIBRARY", "/opt/driver/libcuda.so");
  EXPECT_EQ(chosen_library().value(), "/opt/driver/libcuda.so");
  const Variable on("TENDON_CUDA", "on");
  EXPECT_EQ(chosen_library().value(), "/opt/driver/libcuda.so");
  const Variable off("TENDON_CUDA", "off");
  EXPECT_TRUE(fails_with(chosen_library(), ErrorCode::not_supported, "TENDON_CUDA=off"));
  const Variable other("TENDON_CUDA", "no\x1b[31m");
  EXPECT_TRUE(fails_with(chosen_library(), ErrorCode::invalid_argument, "'no [31m'"));
}

/// Runs the check in a child process, because the first call of a process decides for all.
template <class Check>
void expect_in_child(Check check) {
  const int status = run_in_child([&] { return check() ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(ProcessDriver, IsThatOfTheEnvironmentForGood) {
  const CudaDouble fake;
  const Variable on("TENDON_CUDA", nullptr);
  const Variable library("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  expect_in_child([&] {
    const auto driver = process_driver();
    if (!driver || (*driver)->library() != TENDON_CUDA_DOUBLE) return false;
    setenv("TENDON_CUDA", "off", 1);
    return process_driver().value() == *driver && fake.calls(nullptr) == 0;
  });
}

TEST(ProcessDriver, IsNoneWhereItIsSwitchedOff) {
  const Variable off("TENDON_CUDA", "off");
  expect_in_child([] {
    const auto driver = process_driver();
    unsetenv("TENDON_CUDA");
    return fails_with(driver, ErrorCode::not_supported, "off") &&
           fails_with(process_driver(), ErrorCode::not_supported, "off");
  });
}

}  // namespace
}  // namespace tendon::v0::detail::cuda
