// SPDX-License-Identifier: Apache-2.0
#include "cuda/survey.hpp"

#include <gmock/gmock.h>

#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class Survey : public testing::Test {
 protected:
  [[nodiscard]] Result<cuda::GpuSurvey> find() {
    fake_.reset();
    auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE);
    EXPECT_TRUE(succeeds(driver));
    return cuda::survey(**driver);
  }

  CudaDouble fake_;
};

TEST_F(Survey, NamesEachGpuAndMakesNoContext) {
  const Variable devices("TENDON_CUDA_DOUBLE_DEVICES", "2");
  const auto found = find();
  ASSERT_TRUE(succeeds(found));
  EXPECT_EQ(found->driver, "13.0");
  ASSERT_THAT(found->gpus, SizeIs(2));
  EXPECT_EQ(to_string(found->gpus[1].device), "cuda:1");
  EXPECT_EQ(found->gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_FALSE(found->gpus[0].name.empty());
  EXPECT_THAT(found->gpus[0].lacks, IsEmpty());
  EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRetain"), 0u);
}

TEST_F(Survey, SaysWhatAGpuLacks) {
  const Variable failing("TENDON_CUDA_DOUBLE_FAIL", "cuDeviceGetAttribute=801");
  const auto found = find();
  ASSERT_TRUE(succeeds(found));
  ASSERT_THAT(found->gpus, SizeIs(1));
  EXPECT_THAT(found->gpus[0].lacks, SizeIs(5));
}

TEST_F(Survey, ADriverWithoutAGpuHasNone) {
  const Variable failing("TENDON_CUDA_DOUBLE_FAIL", "cuDeviceGetCount=100");
  const auto found = find();
  ASSERT_TRUE(succeeds(found));
  EXPECT_THAT(found->gpus, IsEmpty());
}

TEST_F(Survey, WhatTheDriverRefusesIsAnError) {
  const Variable failing("TENDON_CUDA_DOUBLE_FAIL", "cuInit=803");
  EXPECT_TRUE(fails_with(find(), ErrorCode::not_supported, "803"));
}

}  // namespace
}  // namespace tendon::test
