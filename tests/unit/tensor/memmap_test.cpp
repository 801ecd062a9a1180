// SPDX-License-Identifier: Apache-2.0
// Folders of memory-mapped tensors. tests/python/test_shared_files.py opens them with tensordict.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/tensor/memmap.hpp>
#include <thread>
#include <vector>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "tensor/memmap_names.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;

class Memmap : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  [[nodiscard]] static TensorDict sample() {
    TensorDict dict({2}, {"time"});
    dict.set("a", Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
    dict.set("none", Tensor::zeros(DType::i64, {2, 0}).value());
    dict.set("below/x y%2Fz", Tensor::zeros(DType::bf16, {2}).value());
    dict.set("label", Value("größe"));
    dict.set("numbers", Value(Value::List{1, 2.5, nullptr}));
    return dict;
  }

  ScratchDir scratch_;
  const fs::path folder_ = scratch_.path() / "folder";
};

// A meeting point: the reader may be first

TEST_F(Memmap, AReaderWaitsUntilTheFolderIsWhole) {
  // The state of the folder before a writer writes the last file.
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  const std::string last = read("meta.json");
  fs::remove(folder_ / "meta.json");
  EXPECT_TRUE(
      fails_with(load_memmap(folder_, Deadline::now()), ErrorCode::file_not_found, "meta.json"));
  std::optional<Result<TensorDict>> loaded;
  std::thread reader([&] {
    loaded = load_memmap(folder_, Deadline(std::chrono::seconds(60)), MapMode::read_only);
  });
  write("meta.json", last.substr(0, last.size() / 2));  // a writer without a rename does so
  write("meta.json", last);
  reader.join();
  ASSERT_TRUE(succeeds(*loaded));
  EXPECT_TRUE(bitwise_equal(**loaded, sample()));
}

TEST_F(Memmap, AWriterThatDoesNotComeIsATimeoutWithTheFileThatIsMissing) {
  EXPECT_TRUE(fails_with(load_memmap(folder_, Deadline(std::chrono::milliseconds(1))),
                         ErrorCode::timeout, "was not written in time"));
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  fs::remove(folder_ / "below" / "meta.json");
  EXPECT_TRUE(fails_with(load_memmap(folder_, Deadline(std::chrono::milliseconds(1))),
                         ErrorCode::timeout, "below/meta.json"));
  write("meta.json", "{");
  EXPECT_TRUE(fails_with(load_memmap(folder_, Deadline(std::chrono::milliseconds(1))),
                         ErrorCode::timeout, "meta.json"));
  // No writer completes a file of a later version.
  write("meta.json", "{\"_format_version\": 9}");
  EXPECT_TRUE(fails_with(load_memmap(folder_, Deadline::never()), ErrorCode::not_supported, "9"));
}

TEST_F(Memmap, AFolderHasWhatTensordictWrites) {
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  EXPECT_EQ(read("meta.json"),
            "{\"a\": {\"device\": \"cpu\", \"shape\": [2, 2], \"dtype\": \"torch.float32\", "
            "\"is_nested\": false}, \"none\": {\"device\": \"cpu\", \"shape\": [2, 0], \"dtype\": "
            "\"torch.int64\", \"is_nested\": false}, \"below\": {\"type\": \"TensorDict\"}, "
            "\"label\": {\"type\": \"NonTensorData\"}, \"numbers\": {\"type\": "
            "\"NonTensorData\"}, \"shape\": [2], \"device\": \"cpu\", \"_type\": \"<class "
            "'tensordict._td.TensorDict'>\", \"_format_version\": 1, \"_class\": "
            "\"tensordict:TensorDict\", \"_names\": [\"time\"]}");
  EXPECT_EQ(read("a.memmap"), std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16));
  EXPECT_FALSE(fs::exists(folder_ / "none.memmap"));
  EXPECT_EQ(read("below/x%20y%2Fz.memmap").size(), 4u);
  EXPECT_EQ(read("label/meta.json"),
            "{\"_type\": \"<class 'tensordict.tensorclass.NonTensorData'>\", \"data\": "
            "\"größe\", \"_metadata\": null, \"_is_non_tensor\": true}");
}

TEST_F(Memmap, IsReadAsItWasWritten) {
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  for (const MapMode mode : {MapMode::copy_on_write, MapMode::read_only, MapMode::read_write}) {
    const auto read = load_memmap(folder_, mode);
    ASSERT_TRUE(succeeds(read));
    EXPECT_TRUE(bitwise_equal(*read, sample()));
    EXPECT_EQ(read->dimension_names(), std::vector<std::string>{"time"});
  }
  ASSERT_TRUE(succeeds(save_memmap(folder_, TensorDict())));
  EXPECT_TRUE(load_memmap(folder_).value().empty());
}

TEST_F(Memmap, PackedAndStridedTensorsAreWrittenToo) {
  const TensorDict made = sample();
  TensorDict packed = TensorDict::allocate(made.schema()).value();
  ASSERT_TRUE(succeeds(save_memmap(folder_, packed)));
  EXPECT_TRUE(bitwise_equal(load_memmap(folder_).value(), packed));

  const Tensor whole = Tensor::of<std::int32_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  TensorDict strided;
  strided.set("t", Tensor::view(whole.storage(), 0, DType::i32, {3, 2}, Strides{1, 3}).value());
  ASSERT_TRUE(succeeds(save_memmap(folder_, strided)));
  const Tensor read = load_memmap(folder_).value()["t"];
  EXPECT_EQ(
      std::vector<std::int32_t>(read.span<std::int32_t>().begin(), read.span<std::int32_t>().end()),
      (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
}

TEST_F(Memmap, WhatIsWrittenReachesTheFileWhereItIsAskedTo) {
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  const TensorDict shared = load_memmap(folder_, MapMode::read_write).value();
  const TensorDict own = load_memmap(folder_, MapMode::copy_on_write).value();
  const TensorDict seen = load_memmap(folder_, MapMode::read_only).value();
  own["a"].span<float>()[0] = 7;
  EXPECT_EQ(seen["a"].span<const float>()[0], 1);
  shared["a"].span<float>()[0] = 9;
  EXPECT_EQ(seen["a"].span<const float>()[0], 9);
  EXPECT_EQ(own["a"].span<float>()[0], 7);
  EXPECT_EQ(seen["a"].storage().access(), Access::read_only);
}

TEST_F(Memmap, AReaderKeepsTheFilesThatItMapped) {
  ASSERT_TRUE(succeeds(save_memmap(folder_, sample())));
  const TensorDict before = load_memmap(folder_).value();
  TensorDict smaller;
  smaller.set("a", Tensor::of<float>({1}, {5}));
  ASSERT_TRUE(succeeds(save_memmap(folder_, smaller)));
  EXPECT_EQ(before["a"].span<float>()[3], 4);
  EXPECT_TRUE(bitwise_equal(load_memmap(folder_).value(), smaller));
}

TEST_F(Memmap, NamesAreThoseOfTensordict) {
  using detail::memmap_file_name;
  EXPECT_EQ(memmap_file_name("plain_größe"), "plain_größe");
  EXPECT_EQ(memmap_file_name(""), "%");
  EXPECT_EQ(memmap_file_name("."), "%2E");
  EXPECT_EQ(memmap_file_name(".."), "%2E%2E");
  EXPECT_EQ(memmap_file_name("..."), "...");
  EXPECT_EQ(memmap_file_name("a/b c%d\n\x7f"), "a%2Fb%20c%25d%0A%7F");
  EXPECT_EQ(memmap_file_name("<>:\"|?*\\"), "%3C%3E%3A%22%7C%3F%2A%5C");
}

TEST_F(Memmap, FoldersOfEarlierReleasesAreRead) {
  // No version, unescaped keys, no meta for stacks of values.
  write("meta.json",
        "{\"x y\": {\"device\": \"cpu\", \"shape\": [1], \"dtype\": \"torch.uint8\"}, \"s\": "
        "{\"type\": \"NonTensorStack\"}, \"shape\": [], \"device\": \"None\", \"_type\": "
        "\"<class 'tensordict._td.TensorDict'>\"}");
  write("x y.memmap", "\x05");
  write("s/meta.json",
        "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"stack_dim\":0,"
        "\"device\":null,\"data\":[\"a\",\"b\"]}");
  const TensorDict read = load_memmap(folder_).value();
  EXPECT_EQ(read["x y"].span<std::uint8_t>()[0], 5);
  EXPECT_EQ(read.value("s"), Value(Value::List{"a", "b"}));
}

TEST_F(Memmap, PartsOfALazyStackAreNamedByTheirNumbers) {
  const std::string part =
      "{\"x\": {\"shape\": [1], \"dtype\": \"torch.uint8\"}, \"shape\": [], \"_type\": \"<class "
      "'tensordict._td.TensorDict'>\"}";
  write("meta.json",
        "{\"_type\": \"<class 'tensordict._lazy.LazyStackedTensorDict'>\", \"stack_dim\": 0}");
  for (const std::string name : {"0", "1"}) {
    write(name + "/meta.json", part);
    write(name + "/x.memmap", name);
  }
  const TensorDict read = load_memmap(folder_).value();
  EXPECT_EQ(read.keys(), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(read["1/x"].span<std::uint8_t>()[0], '1');
}

struct Malformed {
  const char* name;
  const char* meta;
  const char* bytes;  ///< of x.memmap; null: there is none
  ErrorCode code;
  const char* says;
};
void PrintTo(const Malformed& tested, std::ostream* out) { *out << tested.name; }

class MalformedFolder : public Memmap, public testing::WithParamInterface<Malformed> {};

#define TENDON_TD "\"_type\": \"<class 'tensordict._td.TensorDict'>\""
#define TENDON_X(rest) "{\"x\": {" rest "}, \"shape\": [], " TENDON_TD "}"
constexpr Malformed kMalformed[] = {
    {"NoJson", "{", "ab", ErrorCode::corrupt_data, "meta.json"},
    {"NoObject", "[]", "ab", ErrorCode::corrupt_data, "no JSON object"},
    {"NoType", "{}", "ab", ErrorCode::not_supported, "legal are TensorDicts"},
    {"ATensorclass", "{\"_type\": \"<class 'm.Mine'>\"}", "ab", ErrorCode::not_supported, "m.Mine"},
    {"ALaterFormat", "{\"_format_version\": 2, " TENDON_TD "}", "ab", ErrorCode::not_supported,
     "version 2"},
    {"NoFile", TENDON_X("\"shape\": [2], \"dtype\": \"torch.uint8\""), nullptr,
     ErrorCode::corrupt_data, "missing"},
    {"AShortFile", TENDON_X("\"shape\": [3], \"dtype\": \"torch.uint8\""), "ab",
     ErrorCode::corrupt_data, "x.memmap"},
    {"ALongFile", TENDON_X("\"shape\": [1], \"dtype\": \"torch.uint8\""), "ab",
     ErrorCode::corrupt_data, "it has 2 bytes"},
    {"AnEmptyFile", TENDON_X("\"shape\": [1], \"dtype\": \"torch.uint8\""), "",
     ErrorCode::corrupt_data, "empty"},
    {"AnUnknownType", TENDON_X("\"shape\": [2], \"dtype\": \"torch.quint8\""), "ab",
     ErrorCode::unsupported_dtype, "torch.quint8"},
    {"NoShape", TENDON_X("\"dtype\": \"torch.uint8\""), "ab", ErrorCode::corrupt_data, "no shape"},
    {"AHugeShape", TENDON_X("\"shape\": [9223372036854775807, 3], \"dtype\": \"torch.uint8\""),
     "ab", ErrorCode::limit_exceeded, ""},
    {"ANegativeShape", TENDON_X("\"shape\": [-2], \"dtype\": \"torch.uint8\""), "ab",
     ErrorCode::corrupt_data, ""},
    {"AShapeOfText", TENDON_X("\"shape\": [\"2\"], \"dtype\": \"torch.uint8\""), "ab",
     ErrorCode::corrupt_data, "no integer"},
    {"AJaggedTensor", TENDON_X("\"shape\": [2], \"dtype\": \"torch.uint8\", \"is_nested\": true"),
     "ab", ErrorCode::not_supported, "jagged"},
    {"ANestedFolderThatIsNotThere", TENDON_X("\"type\": \"TensorDict\""), "ab",
     ErrorCode::file_not_found, "meta.json"},
    {"ABatchThatDoesNotFit",
     "{\"x\": {\"shape\": [2], \"dtype\": \"torch.uint8\"}, \"shape\": [3], " TENDON_TD "}", "ab",
     ErrorCode::corrupt_data, ""},
    {"NamesThatDoNotFit", "{\"shape\": [3], \"_names\": [], " TENDON_TD "}", "ab",
     ErrorCode::corrupt_data, "names are not one"},
};
INSTANTIATE_TEST_SUITE_P(All, MalformedFolder, testing::ValuesIn(kMalformed),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(MalformedFolder, IsRefused) {
  const Malformed& tested = GetParam();
  write("meta.json", tested.meta);
  if (tested.bytes != nullptr) write("x.memmap", tested.bytes);
  EXPECT_TRUE(fails_with(load_memmap(folder_), tested.code, tested.says));
}

TEST_F(Memmap, AFolderInsideItselfIsRefused) {
  write("meta.json", "{\"d\": {\"type\": \"TensorDict\"}, \"shape\": [], " TENDON_TD "}");
  fs::create_directory_symlink(".", folder_ / "d");
  EXPECT_TRUE(fails_with(load_memmap(folder_), ErrorCode::limit_exceeded));
}

TEST_F(Memmap, NoFolderIsSaidSo) {
  EXPECT_TRUE(fails_with(load_memmap(folder_), ErrorCode::file_not_found, "meta.json"));
  write("file", "x");
  EXPECT_TRUE(fails_with(save_memmap(folder_ / "file" / "below", sample()),
                         ErrorCode::file_not_found, "Not a directory"));
}

TEST_F(Memmap, WhatTheFormatHasNoPlaceForIsRefusedBeforeAnythingIsWritten) {
  TensorDict dict({2});
  dict.set("first", Tensor::zeros(DType::u8, {2}).value());
  dict.set("below/shape", Tensor::zeros(DType::u8, {2}).value());
  EXPECT_TRUE(fails_with(save_memmap(folder_, dict), ErrorCode::invalid_argument, "below/shape"));
  ASSERT_TRUE(succeeds(dict.erase("below")));
  dict.set("exempt", Tensor::zeros(DType::u8, {3}).value(), Batching::exempt);
  EXPECT_TRUE(fails_with(save_memmap(folder_, dict), ErrorCode::invalid_argument, "exempt"));
  ASSERT_TRUE(succeeds(dict.erase("exempt")));
  dict.set("eight", Tensor::zeros(DType::f8_e4m3fn, {2}).value());
  EXPECT_TRUE(fails_with(save_memmap(folder_, dict), ErrorCode::unsupported_dtype, "eight"));
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace tendon::test
