// SPDX-License-Identifier: Apache-2.0
// A program may choose a locale whose numbers have a comma, or U+066B, in place of the point.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <locale.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

/// A locale made for the test; the whole process uses it while it lives.
class ProcessLocale {
 public:
  explicit ProcessLocale(const std::string& name) {
    const std::string path = (directory_.path() / (name + ".UTF-8")).string();
    // It returns 1 where it only warns about gaps in the definition.
    const int made =
        std::system(("localedef -i " + name + " -f UTF-8 " + path + " 2>/dev/null").c_str());
    EXPECT_TRUE(WIFEXITED(made) && WEXITSTATUS(made) <= 1) << "package: locales";
    setenv("LOCPATH", directory_.path().c_str(), 1);
    EXPECT_NE(setlocale(LC_ALL, (name + ".UTF-8").c_str()), nullptr) << name;
  }
  ProcessLocale(const ProcessLocale&) = delete;
  ProcessLocale& operator=(const ProcessLocale&) = delete;
  ~ProcessLocale() {
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
  }

 private:
  ScratchDir directory_;
};

class ForeignLocale : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, ForeignLocale, testing::Values("de_DE", "ps_AF"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(ForeignLocale, NumbersAreReadAndWrittenAsEverywhere) {
  const ProcessLocale locale(GetParam());
  ASSERT_STRNE(localeconv()->decimal_point, ".");
  const Value value =
      Value::Map{{"half", 0.5}, {"large", 1e300}, {"whole", 3.0}, {"count", 1234567}};
  const std::string json = to_json(value).value();
  EXPECT_EQ(json, "{\"half\":0.5,\"large\":1e+300,\"whole\":3.0,\"count\":1234567}");
  EXPECT_EQ(parse_json(as_bytes(json)).value(), value);
  EXPECT_STRNE(localeconv()->decimal_point, ".") << "the program's own is back";
}

TEST_P(ForeignLocale, ErrorsSpeakEnglishAsTheRestOfTheirText) {
  const ProcessLocale locale(GetParam());
  const Error error = system_error("test.locale", "connect", ECONNREFUSED);
  EXPECT_THAT(error.detail, testing::HasSubstr("connect: Connection refused"));
}

TEST_P(ForeignLocale, FilesAreReadAndWrittenAsEverywhere) {
  const ProcessLocale locale(GetParam());
  const ScratchDir directory;
  const std::string path = (directory.path() / "batch.safetensors").string();
  TensorDict batch;
  batch.set("x", Tensor::of<float>({2}, {1.5F, -2.25F}));
  batch.set("rate", Value(0.001));
  ASSERT_TRUE(succeeds(save_safetensors(path, batch)));
  const TensorDict read = load_safetensors(path).value();
  ASSERT_NE(read.values(), nullptr);
  EXPECT_EQ(*read.values(), *batch.values());
}

}  // namespace
}  // namespace tendon::test
