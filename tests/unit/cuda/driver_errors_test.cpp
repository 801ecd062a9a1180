// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_errors.hpp"

#include <gtest/gtest.h>

#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::v0::detail::cuda {
namespace {

using test::CudaDouble;
using test::fails_with;
using test::succeeds;

TEST(DriverErrors, HaveTheWordsOfTheDriver) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  EXPECT_EQ(status_text(driver->table(), Status::out_of_memory),
            "CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)");
  EXPECT_EQ(status_text(driver->table(), static_cast<Status>(12345)), "error 12345 of CUDA");
  EXPECT_EQ(status_text(DriverTable{}, Status::out_of_memory), "error 2 of CUDA");
}

TEST(DriverErrors, SayWhatAndWhereAndWhatToDo) {
  const CudaDouble fake;
  const auto driver = Driver::load(TENDON_CUDA_DOUBLE).value();
  const auto failed = driver_result(driver->table(), "cuda.pool", "cuMemCreate of 8 on cuda:0",
                                    Status::out_of_memory);
  EXPECT_TRUE(fails_with(failed, ErrorCode::resource_exhausted,
                         "cuMemCreate of 8 on cuda:0: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory); "
                         "free memory of the device"));
  EXPECT_EQ(failed.error().where, "cuda.pool");
  EXPECT_TRUE(
      succeeds(driver_result(driver->table(), "cuda.pool", "cuMemCreate", Status::success)));
}

TEST(DriverErrors, HaveTheCodeThatCallersBranchOn) {
  const DriverTable none;
  const auto code = [&](Status status) { return driver_error(none, "x", "y", status).code; };
  EXPECT_EQ(code(Status::no_device), ErrorCode::unsupported_device);
  EXPECT_EQ(code(Status::invalid_device), ErrorCode::unsupported_device);
  EXPECT_EQ(code(Status::device_unavailable), ErrorCode::unsupported_device);
  EXPECT_EQ(code(Status::not_supported), ErrorCode::not_supported);
  EXPECT_EQ(code(Status::stub_library), ErrorCode::not_supported);
  EXPECT_EQ(code(Status::not_permitted), ErrorCode::permission_denied);
  EXPECT_EQ(code(Status::captured_event), ErrorCode::invalid_argument);
  EXPECT_EQ(code(Status::invalid_value), ErrorCode::system);
}

TEST(DriverErrors, ALossSaysWhereToLook) {
  const auto text = [](Status status) {
    return driver_error(DriverTable{}, "cuda.pool", "cuMemCreate of 8 on cuda:0", status).message();
  };
  for (const Status status : {Status::illegal_address, Status::contained}) {
    EXPECT_NE(text(status).find("TD-E0312 device lost: cuMemCreate"), std::string::npos);
    EXPECT_NE(text(status).find("\n do: end this process and start it again"), std::string::npos);
  }
  EXPECT_NE(text(Status::illegal_address).find("compute-sanitizer"), std::string::npos);
  EXPECT_NE(text(Status::contained).find("Xid"), std::string::npos);
}

TEST(DriverErrors, TellALostContextFromARefusedCall) {
  const auto code = [](int status) {
    return driver_error(DriverTable{}, "x", "y", static_cast<Status>(status)).code;
  };
  for (const int sticky :
       {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}) {
    EXPECT_TRUE(loses_context(static_cast<Status>(sticky))) << sticky;
    EXPECT_EQ(code(sticky), ErrorCode::device_lost) << sticky;
  }
  for (const int refused : {0,   1,   2,   3,   4,   46,  100, 101, 201, 225, 400, 500,
                            600, 701, 712, 713, 720, 800, 801, 900, 901, 906, 907, 917}) {
    EXPECT_FALSE(loses_context(static_cast<Status>(refused))) << refused;
    EXPECT_NE(code(refused), ErrorCode::device_lost) << refused;
  }
}

TEST(DriverErrors, AReleaseIsDoneWhenTheDriverOrTheContextHasGone) {
  EXPECT_TRUE(is_released(Status::success));
  EXPECT_TRUE(is_released(Status::deinitialized));
  EXPECT_TRUE(is_released(Status::illegal_address));
  EXPECT_FALSE(is_released(Status::invalid_value));
  EXPECT_FALSE(is_released(Status::not_initialized));
}

}  // namespace
}  // namespace tendon::v0::detail::cuda
