// SPDX-License-Identifier: Apache-2.0
// Files of consolidated TensorDicts. tests/python/test_shared_files.py opens them with tensordict.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tendon/tensor/consolidated.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

class Consolidated : public testing::Test {
 protected:
  /// Writes a file in the form of tensordict.
  void write(std::string_view data, std::string_view object) const {
    const auto length = static_cast<std::int64_t>(object.size());
    std::string end(sizeof length, '\0');
    std::memcpy(end.data(), &length, sizeof length);
    std::ofstream(file_, std::ios::binary) << data << object << end;
  }
  [[nodiscard]] std::string read() const {
    std::ostringstream text;
    text << std::ifstream(file_, std::ios::binary).rdbuf();
    return text.str();
  }
  [[nodiscard]] static TensorDict sample() {
    TensorDict dict({2}, {"time"});
    dict.set("bytes", Tensor::of<std::uint8_t>({2}, {7, 8}));
    dict.set("none", Tensor::zeros(DType::i64, {2, 0}).value());
    dict.set("below/x", Tensor::of<float>({2}, {1, 2}));
    dict.set("label", Value("größe"));
    dict.set("below/numbers", Value(Value::List{1, 2.5, nullptr}));
    return dict;
  }

  ScratchDir scratch_;
  const std::filesystem::path file_ = scratch_.path() / "file";
};

constexpr std::string_view kObject =
    "{\"cls\": \"TensorDict\", \"non_tensors\": {\"label\": [\"größe\", [2], null]}, \"leaves\": "
    "{\"bytes\": [\"torch.uint8\", [2], 0, 8, 6], \"none\": [\"torch.int64\", [2, 0], 8, 8, 0]}, "
    "\"cls_metadata\": {\"device\": null, \"names\": [\"time\"], \"batch_size\": [2], "
    "\"is_locked\": false}, \"below\": {\"cls\": \"TensorDict\", \"non_tensors\": {\"numbers\": "
    "[[1,2.5,null], [2], null]}, \"leaves\": {\"x\": [\"torch.float32\", [2], 8, 16, 0]}, "
    "\"cls_metadata\": {\"device\": null, \"names\": [null], \"batch_size\": [2], \"is_locked\": "
    "false}}}";

TEST_F(Consolidated, AFileHasWhatTensordictWrites) {
  ASSERT_TRUE(succeeds(save_consolidated(file_, sample())));
  std::string expected("\7\10\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40", 16);
  expected += kObject;
  const auto length = static_cast<std::int64_t>(kObject.size());
  expected.append(reinterpret_cast<const char*>(&length), sizeof length);
  EXPECT_EQ(read(), expected);
}

TEST_F(Consolidated, IsReadAsItWasWritten) {
  ASSERT_TRUE(succeeds(save_consolidated(file_, sample())));
  for (const MapMode mode : {MapMode::copy_on_write, MapMode::read_only, MapMode::read_write}) {
    const auto read = load_consolidated(file_, mode);
    ASSERT_TRUE(succeeds(read));
    EXPECT_TRUE(bitwise_equal(*read, sample()));
    EXPECT_EQ(read->dimension_names(), std::vector<std::string>{"time"});
  }
  const TensorDict packed = TensorDict::allocate(sample().schema()).value();
  ASSERT_TRUE(succeeds(save_consolidated(file_, packed)));
  EXPECT_TRUE(bitwise_equal(load_consolidated(file_).value(), packed));
  ASSERT_TRUE(succeeds(save_consolidated(file_, TensorDict())));
  EXPECT_TRUE(load_consolidated(file_).value().empty());
}

TEST_F(Consolidated, WhatIsWrittenReachesTheFileWhereItIsAskedTo) {
  ASSERT_TRUE(succeeds(save_consolidated(file_, sample())));
  const TensorDict shared = load_consolidated(file_, MapMode::read_write).value();
  const TensorDict own = load_consolidated(file_).value();
  own["below/x"].span<float>()[0] = 7;
  shared["below/x"].span<float>()[1] = 9;
  const TensorDict seen = load_consolidated(file_, MapMode::read_only).value();
  EXPECT_EQ(seen["below/x"].span<const float>()[0], 1);
  EXPECT_EQ(seen["below/x"].span<const float>()[1], 9);
}

TEST_F(Consolidated, StacksAndLazyStacksAreRead) {
  write("abcdefgh",
        "{\"cls\": \"LazyStackedTensorDict\", \"non_tensors\": {}, \"leaves\": {}, "
        "\"cls_metadata\": {\"stack_dim\": 0}, \"0\": {\"cls\": \"TensorDict\", \"non_tensors\": "
        "{}, \"leaves\": {\"x\": [\"torch.uint8\", [2], 0, 8, 6]}, \"cls_metadata\": "
        "{\"batch_size\": []}, \"s\": {\"cls\": \"NonTensorStack\", \"non_tensors\": {\"0\": "
        "[\"a\", [], null]}, \"leaves\": {}, \"1\": {\"cls\": \"NonTensorStack\", "
        "\"non_tensors\": {\"0\": [\"b\", [], null]}, \"leaves\": {}}}}}");
  const TensorDict read = load_consolidated(file_).value();
  EXPECT_EQ(read["0/x"].span<std::uint8_t>()[1], 'b');
  EXPECT_EQ(read.value("0/s"), Value(Value::List{"a", Value::List{"b"}}));
}

struct MalformedObject {
  const char* name;
  const char* object;
  ErrorCode code;
  const char* says;
};
void PrintTo(const MalformedObject& tested, std::ostream* out) { *out << tested.name; }

class MalformedFile : public Consolidated, public testing::WithParamInterface<MalformedObject> {};

#define TENDON_OBJECT(leaf)                                                  \
  "{\"cls\": \"TensorDict\", \"non_tensors\": {}, \"leaves\": {\"x\": " leaf \
  "}, "                                                                      \
  "\"cls_metadata\": {\"batch_size\": []}}"
constexpr MalformedObject kMalformedObjects[] = {
    {"NoJson", "{", ErrorCode::corrupt_data, ""},
    {"NoObject", "[]", ErrorCode::corrupt_data, "no class"},
    {"ATensorclass", "{\"cls\": \"<class 'm.Mine'>\"}", ErrorCode::not_supported, "m.Mine"},
    {"NoLeaves", "{\"cls\": \"TensorDict\", \"cls_metadata\": {\"batch_size\": []}}",
     ErrorCode::corrupt_data, "'leaves'"},
    {"NoBatchSize", "{\"cls\": \"TensorDict\", \"leaves\": {}, \"non_tensors\": {}}",
     ErrorCode::corrupt_data, "batch_size"},
    {"NoLeaf", TENDON_OBJECT("[]"), ErrorCode::corrupt_data, "[dtype, shape"},
    {"AJaggedTensor", TENDON_OBJECT("[\"torch.uint8\", [2], 0, 8, 6, 1]"), ErrorCode::not_supported,
     "jagged"},
    {"AnUnknownType", TENDON_OBJECT("[\"torch.quint8\", [2], 0, 8, 6]"),
     ErrorCode::unsupported_dtype, "torch.quint8"},
    {"BehindTheEnd", TENDON_OBJECT("[\"torch.uint8\", [2], 7, 9, 0]"), ErrorCode::corrupt_data,
     "'x'"},
    {"FarBehindTheEnd", TENDON_OBJECT("[\"torch.uint8\", [2], 9223372036854775807, 0, 0]"),
     ErrorCode::corrupt_data, "'x'"},
    {"BeforeTheBeginning", TENDON_OBJECT("[\"torch.uint8\", [2], -2, 0, 0]"),
     ErrorCode::corrupt_data, "whole numbers"},
    {"AnotherSize", TENDON_OBJECT("[\"torch.uint8\", [2], 0, 8, 5]"), ErrorCode::corrupt_data,
     "do not leave the bytes"},
    {"AHugePad", TENDON_OBJECT("[\"torch.uint8\", [2], 0, 0, 9223372036854775807]"),
     ErrorCode::corrupt_data, "do not leave the bytes"},
    {"AStackWithAHole",
     "{\"cls\": \"TensorDict\", \"non_tensors\": {}, \"leaves\": {}, \"cls_metadata\": "
     "{\"batch_size\": []}, \"s\": {\"cls\": \"NonTensorStack\", \"non_tensors\": {\"0\": "
     "[\"a\", [], null], \"2\": [\"c\", [], null]}}}",
     ErrorCode::corrupt_data, "missing"},
    {"AHugeShape", TENDON_OBJECT("[\"torch.uint8\", [9223372036854775807, 3], 0, 8, 6]"),
     ErrorCode::limit_exceeded, ""},
};
INSTANTIATE_TEST_SUITE_P(All, MalformedFile, testing::ValuesIn(kMalformedObjects),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(MalformedFile, IsRefused) {
  write("abcdefgh", GetParam().object);
  EXPECT_TRUE(fails_with(load_consolidated(file_), GetParam().code, GetParam().says));
}

TEST_F(Consolidated, ALengthThatTheFileDoesNotHaveIsRefused) {
  for (const std::string& bytes :
       {std::string("abc"), std::string(8, '\x7f'), std::string(16, '\xff')}) {
    std::ofstream(file_, std::ios::binary) << bytes;
    EXPECT_TRUE(fails_with(load_consolidated(file_), ErrorCode::corrupt_data, "8 bytes"));
  }
  std::ofstream(file_, std::ios::binary).flush();
  EXPECT_TRUE(fails_with(load_consolidated(file_), ErrorCode::corrupt_data, "empty"));
  EXPECT_TRUE(fails_with(load_consolidated(scratch_.path() / "no"), ErrorCode::file_not_found));
}

TEST_F(Consolidated, WhatTheFormatHasNoPlaceForIsRefused) {
  TensorDict dict({2});
  dict.set("leaves/x", Tensor::zeros(DType::u8, {2}).value());
  EXPECT_TRUE(fails_with(save_consolidated(file_, dict), ErrorCode::invalid_argument, "leaves"));
  ASSERT_TRUE(succeeds(dict.erase("leaves")));
  dict.set("exempt", Tensor::zeros(DType::u8, {3}).value(), Batching::exempt);
  EXPECT_TRUE(fails_with(save_consolidated(file_, dict), ErrorCode::invalid_argument, "exempt"));
  ASSERT_TRUE(succeeds(dict.erase("exempt")));
  dict.set("one", Tensor::zeros(DType::u8, {2}).value());
  dict.set("complex", Tensor::zeros(DType::c128, {2}).value());
  EXPECT_TRUE(fails_with(save_consolidated(file_, dict), ErrorCode::invalid_argument, "byte 8"));
  ASSERT_TRUE(succeeds(dict.erase("complex")));
  dict.set("eight", Tensor::zeros(DType::f8_e4m3fn, {2}).value());
  EXPECT_TRUE(fails_with(save_consolidated(file_, dict), ErrorCode::unsupported_dtype, "eight"));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace tendon::test
