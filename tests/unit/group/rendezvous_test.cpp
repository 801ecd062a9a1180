// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <tendon/group/rendezvous.hpp>

namespace tendon {
namespace {

using testing::HasSubstr;

/// Sets variables of the environment, and clears the others that a launcher sets.
class Environment {
 public:
  explicit Environment(const std::map<const char*, const char*>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~Environment() { clear(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void clear() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TENDON_RENDEZVOUS",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID",
          "SLURM_NTASKS", "TORCHELASTIC_USE_AGENT_STORE", "PMIX_NAMESPACE",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES"})
      unsetenv(name);
  }
};

TEST(FromEnvironment, OfTheUsualLaunchers) {
  {
    const Environment set({{"RANK", "2"},
                           {"WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "10.0.0.1"},
                           {"MASTER_PORT", "29500"}});
    const Rendezvous found = Rendezvous::from_environment();
    ASSERT_FALSE(found.problem()) << found.problem()->message();
    EXPECT_EQ(found.rank().value, 2u);
    EXPECT_EQ(found.size(), 4u);
    EXPECT_EQ(found.address(), "10.0.0.1:29500");
  }
  {
    const Environment set({{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "fe80::1"},
                           {"MASTER_PORT", "1"}});
    const Rendezvous found = Rendezvous::from_environment();
    EXPECT_EQ(found.address(), "[fe80::1]:1");
  }
  {
    const Environment set({{"SLURM_PROCID", "3"},
                           {"SLURM_NTASKS", "8"},
                           {"TENDON_RENDEZVOUS", "unix:@job"},
                           {"MASTER_ADDR", "x"},
                           {"MASTER_PORT", "1"}});
    const Rendezvous found = Rendezvous::from_environment();
    EXPECT_EQ(found.rank().value, 3u);
    EXPECT_EQ(found.address(), "unix:@job");
  }
}

// mpirun and srun set no address; on one host none is needed.
TEST(FromEnvironment, AJobOnOneHostMeetsByItsName) {
  std::map<const char*, const char*> mpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                               {"PMIX_NAMESPACE", "prterun-host-17@1"}};
  const auto found = [](const auto& variables) {
    const Environment set(variables);
    const Rendezvous rendezvous = Rendezvous::from_environment();
    return rendezvous.problem() ? rendezvous.problem()->detail : rendezvous.address();
  };
  EXPECT_EQ(found(mpirun), "unix:@tendon-job-prterun-host-17@1");
  mpirun["PMIX_NAMESPACE"] = "a/b";
  EXPECT_THAT(found(mpirun), HasSubstr("mpirun -x TENDON_RENDEZVOUS"));
  mpirun["PMIX_NAMESPACE"] = "17";
  mpirun["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(found(mpirun), HasSubstr("mpirun -x TENDON_RENDEZVOUS")) << "several hosts";
  std::map<const char*, const char*> srun = {{"SLURM_PROCID", "0"},
                                             {"SLURM_NTASKS", "2"},
                                             {"SLURM_JOB_ID", "12"},
                                             {"SLURM_STEP_ID", "3"},
                                             {"SLURM_STEP_NUM_NODES", "1"}};
  EXPECT_EQ(found(srun), "unix:@tendon-job-12.3");
  auto inside = srun;  // MPICH's mpiexec in a step of Slurm's
  inside["PMI_RANK"] = inside["PMI_SIZE"] = "2";
  EXPECT_THAT(found(inside), HasSubstr("srun --export=ALL"));
  srun["SLURM_STEP_NUM_NODES"] = "2";
  EXPECT_THAT(found(srun), HasSubstr("srun --export=ALL"));
}

TEST(FromEnvironment, WhatIsMissingIsNamed) {
  const auto problem = [](const std::map<const char*, const char*>& variables) {
    const Environment set(variables);
    const Rendezvous found = Rendezvous::from_environment();
    return found.problem() ? found.problem()->detail : std::string("none");
  };
  EXPECT_THAT(problem({}), HasSubstr("RANK is not set"));
  EXPECT_THAT(problem({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(problem({{"RANK", "zero"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is 'zero'"));
  EXPECT_THAT(problem({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is '-1'"));
  EXPECT_THAT(problem({{"RANK", "0"}, {"WORLD_SIZE", "999"}}), HasSubstr("WORLD_SIZE is '999'"));
  EXPECT_THAT(problem({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
              HasSubstr("MASTER_PORT, is not set"));
  EXPECT_THAT(problem({{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "1"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
              HasSubstr("torchrun's agent"));
  EXPECT_EQ(problem({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "none");
}

}  // namespace
}  // namespace tendon
