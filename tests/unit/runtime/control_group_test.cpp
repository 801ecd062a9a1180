// SPDX-License-Identifier: Apache-2.0
#include "runtime/control_group.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "support/scratch_dir.hpp"

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr ControlGroupLimit kMemory{
    .unified = "memory.max", .controller = "memory", .legacy = "memory.limit_in_bytes"};

class ControlGroup : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> files(const std::string& membership,
                                               const ControlGroupLimit& limit = kMemory) const {
    const std::string path = folder_.path() / "cgroup";
    std::ofstream(path) << membership;
    return control_group_files(limit, {.membership = path, .root = "/r"});
  }

 private:
  test::ScratchDir folder_;
};

TEST_F(ControlGroup, EveryGroupUpToTheRootBinds) {
  EXPECT_THAT(files("0::/user.slice/a b.scope\n"),
              ElementsAre("/r/user.slice/a b.scope/memory.max", "/r/user.slice/memory.max",
                          "/r/memory.max"));
  EXPECT_THAT(files("0::/\n"), ElementsAre("/r/memory.max"));
}

TEST_F(ControlGroup, TheOldHierarchiesAreFoundByTheirController) {
  EXPECT_THAT(
      files("5:cpu,memory:/job\n4:cpuset:/\n"),
      ElementsAre("/r/memory/job/memory.limit_in_bytes", "/r/memory/memory.limit_in_bytes"));
  EXPECT_THAT(files("5:cpu,memory:/job\n", {.unified = "cpu.max"}), IsEmpty());
}

TEST_F(ControlGroup, WhatLiesAboveTheVisibleRootIsThatRoot) {
  EXPECT_THAT(files("0::/../other\n"), ElementsAre("/r/memory.max"));
}

TEST_F(ControlGroup, NonsenseIsNoGroup) {
  EXPECT_THAT(files("nonsense\n\n1:memory\n"), IsEmpty());
  EXPECT_THAT(control_group_files(kMemory, {.membership = "/nonexistent", .root = "/r"}),
              IsEmpty());
}

}  // namespace
}  // namespace tendon::detail
