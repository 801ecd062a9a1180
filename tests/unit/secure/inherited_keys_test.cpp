// SPDX-License-Identifier: Apache-2.0
#include "secure/inherited_keys.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "core/fd.hpp"
#include "secure/credential_file.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

const std::string kLine = "tendon-key-v1 fleet AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

/// A pipe as a parent leaves it to a program: exec does not close its reading end.
struct InheritedPipe {
  InheritedPipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends[0], F_SETFD, 0), 0);
    reading = ends[0];
    writing = detail::OwnedFd(ends[1]);
  }
  void say(const std::string& text) const {
    EXPECT_EQ(write(writing.get(), text.data(), text.size()), std::ssize(text));
  }
  int reading;  // owned by the reader
  detail::OwnedFd writing;
};

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

TEST(InheritedKeys, AreReadToTheEndOfAPipeWhichIsClosed) {
  InheritedPipe pipe;
  pipe.say("# of a vault\n" + kLine);
  pipe.writing.reset();
  const auto keys = detail::read_inherited_keys(pipe.reading, kPatience);
  ASSERT_TRUE(succeeds(keys));
  ASSERT_EQ(keys->size(), 1u);
  EXPECT_EQ(keys->front().label, "fleet");
  EXPECT_FALSE(is_open(pipe.reading));
}

TEST(InheritedKeys, MayBeAFileWhateverItsMode) {
  const ScratchDir folder;
  const std::string file = (folder.path() / "key").string();
  std::ofstream(file) << kLine;
  const int descriptor = open(file.c_str(), O_RDONLY);  // NOLINT: not O_CLOEXEC
  EXPECT_TRUE(succeeds(detail::read_inherited_keys(descriptor, kPatience)));
}

TEST(InheritedKeys, AreCheckedAsAFileIs) {
  InheritedPipe broken;
  const std::string name = "'descriptor " + std::to_string(broken.reading) + "' line 2";
  broken.say("\ntendon-key-v1 a b\n");
  broken.writing.reset();
  EXPECT_TRUE(fails_with(detail::read_inherited_keys(broken.reading, kPatience),
                         ErrorCode::corrupt_data, name));
  EXPECT_FALSE(is_open(broken.reading)) << "after an error too";
  InheritedPipe large;
  ASSERT_GT(fcntl(large.writing.get(), F_SETPIPE_SZ, 2 << 16), 1 << 16);
  large.say(std::string(detail::kMaxCredentialFileBytes + 1, '#'));
  EXPECT_TRUE(fails_with(detail::read_inherited_keys(large.reading, kPatience),
                         ErrorCode::limit_exceeded, "65536"));
}

TEST(InheritedKeys, AWriterThatNeverClosesIsATimeout) {
  InheritedPipe pipe;
  pipe.say(kLine);
  EXPECT_TRUE(fails_with(detail::read_inherited_keys(pipe.reading, Deadline::now()),
                         ErrorCode::timeout, "close it"));
  EXPECT_FALSE(is_open(pipe.reading));
}

TEST(InheritedKeys, AreNotBehindStdoutOrStderr) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    EXPECT_TRUE(fails_with(detail::read_inherited_keys(descriptor, kPatience),
                           ErrorCode::invalid_argument, "where this program writes"));
    EXPECT_TRUE(is_open(descriptor));
  }
}

TEST(InheritedKeys, ADescriptorOfThisProcessIsNone) {
  const ScratchDir folder;
  const detail::OwnedFd own(open(folder.path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(fails_with(detail::read_inherited_keys(own.get(), kPatience),
                         ErrorCode::invalid_argument, "was not inherited"));
  EXPECT_TRUE(is_open(own.get()));
  EXPECT_TRUE(fails_with(detail::read_inherited_keys(99'999, kPatience),
                         ErrorCode::invalid_argument, "99999"));
}

}  // namespace
}  // namespace tendon::test
