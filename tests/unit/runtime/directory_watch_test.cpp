// SPDX-License-Identifier: Apache-2.0
#include "runtime/directory_watch.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "session/socket_names.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;
using detail::ContextCore;
using detail::DirectoryWatch;

class Watching : public testing::Test {
 protected:
  Watching() {
    EXPECT_EQ(mkdir(directory_.c_str(), 0700), 0);
    socket_ = detail::listen_at(file_, 1).value();
  }
  ~Watching() override {
    if (watch_ != nullptr) watch_->stop();
  }
  void watch(DirectoryWatch::Notices notices) {
    watch_ = std::make_shared<DirectoryWatch>(
        ContextCore::of(context_), [looks = looks_] { looks->fetch_add(1); }, notices);
    watch_->follow(directory_, {file_});
  }
  [[nodiscard]] bool looks_again() const {
    const int before = looks_->load();
    return eventually([&] { return looks_->load() > before; });
  }

  const ScratchDir dir_;
  const std::string directory_ = (dir_.path() / "run").string();
  const std::string file_ = directory_ + "/0123456789abcdef0123456789abcdef.node";
  Context context_ = Context::create({}).value();
  detail::ListeningSocket socket_;
  const std::shared_ptr<std::atomic<int>> looks_ = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<DirectoryWatch> watch_;
};

TEST_F(Watching, TheKernelTellsOfTheDirectoryAndOfItsFiles) {
  watch(DirectoryWatch::Notices::by_kernel);
  fs::remove(file_);
  EXPECT_TRUE(eventually([&] { return looks_->load() > 0; }));
  watch_->follow(directory_, {});
  int before = looks_->load();
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_TRUE(eventually([&] { return looks_->load() > before; }));
  before = looks_->load();
  fs::rename(directory_, directory_ + "-away");
  EXPECT_TRUE(eventually([&] { return looks_->load() > before; }));
}

// A bound socket keeps the kernel from reporting the removal for the directory itself.
TEST_F(Watching, TheParentTellsOfARemovedDirectory) {
  watch(DirectoryWatch::Notices::by_kernel);
  watch_->follow(directory_, {});
  const int before = looks_->load();
  fs::remove_all(directory_);
  EXPECT_TRUE(eventually([&] { return looks_->load() > before; }));
}

TEST_F(Watching, WithoutNoticesOfTheKernelItLooksByTheClock) {
  watch(DirectoryWatch::Notices::by_clock);
  EXPECT_TRUE(looks_again());
  EXPECT_TRUE(looks_again()) << "and again";
}

TEST_F(Watching, LooksNoMoreWhenItWasStopped) {
  watch(DirectoryWatch::Notices::by_kernel);
  watch_->stop();
  fs::remove_all(directory_);
  watch_->on_time();
  watch_->follow(directory_, {});
  EXPECT_EQ(looks_->load(), 0);
}

}  // namespace
}  // namespace tendon::test
