// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/random_dict.hpp"
#include "support/scratch_dir.hpp"
#include "support/storage_on_gpu.hpp"
#include "tensor/copy.hpp"

namespace tendon {
namespace {

using test::fails_with;
using test::ScratchDir;
using test::succeeds;
using Names = std::vector<std::string>;

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A file in memory: the length, the header, the data.
std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + std::string(header) + std::string(data);
}

Storage storage_of(std::string_view bytes) {
  Storage storage = Storage::allocate(bytes.size()).value();
  if (!bytes.empty()) std::memcpy(storage.data(), bytes.data(), bytes.size());
  return storage;
}

Result<TensorDict> parse(std::string_view header, std::string_view data) {
  return parse_safetensors(storage_of(file_of(header, data)));
}

TensorDict tree() {
  TensorDict dict(Shape{2}, {"time"});
  dict.set("obs", Tensor::of<float>({2, 2}, {1, 2, 3, 4}).transpose(0, 1).value());
  dict.set("info/step", 7);
  dict.set("info/done", Tensor::of<bool>({2}, {true, false}));
  dict.set("info.done", Tensor::of<std::int64_t>({2}, {5, 6}));
  dict.set("w", Tensor::of<double>({}, {0.5}), Batching::exempt);
  return dict;
}

TEST(Safetensors, ATreeComesBack) {
  const ScratchDir dir;
  const auto path = dir.path() / "tree.safetensors";
  ASSERT_TRUE(succeeds(save_safetensors(path, tree())));
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  EXPECT_TRUE(bitwise_equal(file.tensors(), tree())) << file.tensors();
  EXPECT_EQ(file.tensors().keys(), tree().keys()) << "insertion order, values too";
  EXPECT_EQ(file.header().size_bytes % 64, 0u);
  ASSERT_EQ(file.header().metadata.size(), 1u);
  EXPECT_EQ(file.header().metadata[0].first, "tensordict");
  EXPECT_EQ(file.header().metadata[0].second,
            "{\"version\":1,\"root\":{\"batch_size\":[2],\"names\":[\"time\"],\"keys\":{"
            "\"obs\":{\"tensor\":\"obs\"},"
            "\"info\":{\"td\":{\"batch_size\":[2],\"names\":null,\"keys\":{"
            "\"step\":{\"non_tensor\":7},\"done\":{\"tensor\":\"info.done\"}}}},"
            "\"info.done\":{\"tensor\":\"info.done#2\"},"
            "\"w\":{\"tensor\":\"w\",\"unbatched\":true}}}}");
}

TEST(Safetensors, AFlatDictNeedsNoStructure) {
  const ScratchDir dir;
  const auto path = dir.path() / "flat.safetensors";
  TensorDict dict;
  dict.set("a.weight", Tensor::of<std::uint8_t>({3}, {1, 2, 3}));
  dict.set("b%2Fc", Tensor::of<float>({1}, {4}));
  SaveOptions options;
  options.metadata = {{"format", "pt"}, {"author", "ü"}};
  ASSERT_TRUE(succeeds(save_safetensors(path, dict, options)));
  const std::string text = contents(path);
  EXPECT_EQ(text.substr(8, text.find('}', 150) - 6),
            "{\"__metadata__\":{\"format\":\"pt\",\"author\":\"ü\"},"
            "\"a.weight\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
            "\"b/c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  EXPECT_TRUE(bitwise_equal(file.tensors(), dict));
  EXPECT_EQ(file.header().metadata, options.metadata);
}

TEST(Safetensors, MetadataOfOthersIsSavedAgainBesideOurs) {
  const ScratchDir dir;
  const auto path = dir.path() / "tree.safetensors";
  const SafetensorsMetadata theirs = {{"format", "pt"}, {"author", "ü"}};
  ASSERT_TRUE(succeeds(save_safetensors(path, tree(), {.metadata = theirs})));
  for (int round = 0; round < 2; ++round) {
    const SafetensorsFile file = SafetensorsFile::open(path).value();
    EXPECT_EQ(file.metadata(), theirs);
    EXPECT_EQ(file.header().metadata.size(), 3u) << "with the structure";
    ASSERT_TRUE(succeeds(save_safetensors(path, file.tensors(), {.metadata = file.metadata()})));
  }
}

TEST(Safetensors, TheEmptyDictIsAFile) {
  const ScratchDir dir;
  ASSERT_TRUE(succeeds(save_safetensors(dir.path() / "x", TensorDict())));
  EXPECT_TRUE(bitwise_equal(load_safetensors(dir.path() / "x").value(), TensorDict()));
  EXPECT_TRUE(succeeds(parse("{}", "")));
}

TEST(Safetensors, WritingToATensorDoesNotReachTheFile) {
  const ScratchDir dir;
  const auto path = dir.path() / "x";
  TensorDict dict;
  dict.set("x", Tensor::of<std::int32_t>({2}, {1, 2}));
  ASSERT_TRUE(succeeds(save_safetensors(path, dict)));
  const std::string before = contents(path);
  const TensorDict loaded = load_safetensors(path).value();
  loaded["x"].set_item<std::int32_t>({0}, 99);
  EXPECT_EQ(loaded["x"].item<std::int32_t>({0}), 99);
  EXPECT_EQ(contents(path), before);
}

TEST(Safetensors, TensorsOutliveFileAndName) {
  const ScratchDir dir;
  const auto path = dir.path() / "x";
  TensorDict dict;
  dict.set("x", Tensor::of<std::int32_t>({2}, {1, 2}));
  ASSERT_TRUE(succeeds(save_safetensors(path, dict)));
  const Tensor tensor = load_safetensors(path).value()["x"];
  std::filesystem::remove(path);
  EXPECT_EQ(tensor.item<std::int32_t>({1}), 2);
}

TEST(Safetensors, AForeignHeaderMakesAByteIdenticalCopy) {
  const ScratchDir dir;
  // Entries in another order, a header that is not padded, unnecessary spaces.
  const std::string foreign = file_of(
      "{ \"b\" : {\"shape\":[2],\"data_offsets\":[3,11],\"dtype\":\"F32\"},\n"
      "\"__metadata__\":{\"z\":\"1\",\"a\":\"2\"},"
      "\"none\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[3,3]},"
      "\"a.x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}   ",
      "abc12345678");
  const SafetensorsFile file = SafetensorsFile::parse(storage_of(foreign)).value();
  EXPECT_EQ(file.tensors().keys(), Names({"b", "none", "a.x"}));
  EXPECT_EQ(file.header().metadata, (SafetensorsMetadata{{"z", "1"}, {"a", "2"}}));
  SaveOptions options;
  options.header = file.header_bytes();
  ASSERT_TRUE(succeeds(save_safetensors(dir.path() / "copy", file.tensors(), options)));
  EXPECT_EQ(contents(dir.path() / "copy"), foreign);

  TensorDict other = file.tensors();
  other.set("b", Tensor::of<float>({3}, {1, 2, 3}));
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "copy", other, options),
                         ErrorCode::schema_mismatch, "'b'"));
  other = file.tensors();
  other.set("value", 1);
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "copy", other, options),
                         ErrorCode::schema_mismatch, "non-tensor"));
  EXPECT_EQ(contents(dir.path() / "copy"), foreign) << "a refused save changes nothing";
}

TEST(Safetensors, MisalignedTensorsCanBeReadByCopy) {
  const TensorDict dict = parse(
                              "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
                              std::string_view("x\0\0\x80\x3f", 5))
                              .value();
  EXPECT_TRUE(fails_with(dict["b"].try_span<float>(), ErrorCode::invalid_argument, "multiple"));
  EXPECT_EQ(dict["b"].item<float>({0}), 1.0f);
  EXPECT_EQ(dict["b"].contiguous().value().span<float>()[0], 1.0f);
}

TEST(Safetensors, RefusesBrokenHeaders) {
  const std::string good = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  ASSERT_TRUE(succeeds(parse(good, "abcd")));
  const struct {
    std::string header;
    std::string data;
    ErrorCode code;
    const char* what;
  } kCases[] = {
      {good, "abc", ErrorCode::corrupt_data, "4"},
      {good, "abcde", ErrorCode::corrupt_data, "5"},
      {"", "", ErrorCode::corrupt_data, "'{'"},
      {" " + good, "abcd", ErrorCode::corrupt_data, "'{'"},
      {"\xef\xbb\xbf" + good, "abcd", ErrorCode::corrupt_data, "'{'"},
      {good + "x", "abcd", ErrorCode::corrupt_data, "JSON"},
      {good.substr(0, good.size() - 1), "abcd", ErrorCode::corrupt_data, "JSON"},
      {"{\"a\":1}", "", ErrorCode::corrupt_data, "'a'"},
      {"{\"a\":[]}", "", ErrorCode::corrupt_data, "'a'"},
      {"{\"a\":{}}", "", ErrorCode::corrupt_data, "lacks"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", "abcd", ErrorCode::corrupt_data, "lacks"},
      {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", "abcd", ErrorCode::corrupt_data, "lacks"},
      {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "a", ErrorCode::corrupt_data, "lacks"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", "abcd",
       ErrorCode::corrupt_data, "lacks"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", "abcd",
       ErrorCode::corrupt_data, "data_offsets"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "shape"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "shape"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[[4]],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "shape"},
      {"{\"a\":{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "dtype"},
      {"{\"a\":{\"dtype\":\"U9\",\"shape\":[4],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::unsupported_dtype, "'U9'"},
      {"{\"a\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::unsupported_dtype, "'F4'"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":1}}", "abcd",
       ErrorCode::corrupt_data, "'x'"},
      {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "twice"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "3 bytes"},
      {"{\"a\":{\"dtype\":\"U16\",\"shape\":[4],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "8 bytes"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", "abcd",
       ErrorCode::corrupt_data, "[4, 0]"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", "",
       ErrorCode::corrupt_data, "2^63"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}}", "abcd",
       ErrorCode::corrupt_data, "2^63"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4],"
       "\"data_offsets\":[0,4]}}",
       "abcd", ErrorCode::limit_exceeded, "16"},
      // A hole before, a hole between, an overlap, the same name twice.
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", "abcd",
       ErrorCode::corrupt_data, "holes"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
       "abcd", ErrorCode::corrupt_data, "'b'"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
       "abcd", ErrorCode::corrupt_data, "overlaps"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
       "abcd", ErrorCode::corrupt_data, "overlaps"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
       "abcd", ErrorCode::corrupt_data, "twice"},
      {"{\"__metadata__\":{\"a\":1}}", "", ErrorCode::corrupt_data, "'a'"},
      {"{\"__metadata__\":{\"a\":{}}}", "", ErrorCode::corrupt_data, "'a'"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", "", ErrorCode::corrupt_data, "twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "", ErrorCode::corrupt_data, "twice"},
      {"{\"__metadata__\":1}", "", ErrorCode::corrupt_data, "'__metadata__'"},
      {"{\"" + std::string(256, 'n') +
           "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
       "", ErrorCode::limit_exceeded, "255"},
  };
  for (const auto& test : kCases)
    EXPECT_TRUE(fails_with(parse(test.header, test.data), test.code, test.what)) << test.header;
}

TEST(Safetensors, RefusesEveryTruncation) {
  const ScratchDir dir;
  const auto path = dir.path() / "x";
  ASSERT_TRUE(succeeds(save_safetensors(path, tree())));
  const std::string whole = contents(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    EXPECT_TRUE(fails_with(parse_safetensors(storage_of(part)), ErrorCode::corrupt_data)) << size;
    if (size % 50 != 0) continue;
    std::ofstream(path, std::ios::binary) << part;
    EXPECT_TRUE(fails_with(load_safetensors(path), ErrorCode::corrupt_data)) << size;
  }
  std::ofstream(path, std::ios::binary) << whole << "x";
  EXPECT_TRUE(fails_with(load_safetensors(path), ErrorCode::corrupt_data, path.string()));
}

TEST(Safetensors, HeaderLengthAtTheLimitAndBeyond) {
  std::string header = "{}";
  header.resize(kMaxFileHeaderBytes, ' ');
  EXPECT_TRUE(succeeds(parse(header, "")));
  EXPECT_TRUE(fails_with(parse(header + " ", ""), ErrorCode::limit_exceeded, "16777216"));
  for (const std::uint64_t length : {~0ull, 1ull << 63, ~0ull - 7}) {
    std::string file(100, 'x');
    std::memcpy(file.data(), &length, sizeof length);
    EXPECT_TRUE(fails_with(parse_safetensors(storage_of(file)), ErrorCode::limit_exceeded));
  }
  SaveOptions options;
  options.metadata = {{"x", std::string(kMaxFileHeaderBytes, 'a')}};
  EXPECT_TRUE(
      fails_with(make_safetensors_header(TensorDict(), options), ErrorCode::limit_exceeded));
}

TEST(Safetensors, LeavesAtTheLimitAndBeyond) {
  std::string header = "{";
  for (std::size_t i = 0; i < kMaxLeaves; ++i) {
    if (i > 0) header += ',';
    header +=
        "\"" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  }
  EXPECT_EQ(parse(header + "}", "").value().leaf_count(), kMaxLeaves);
  header += ",\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
  EXPECT_TRUE(fails_with(parse(header, ""), ErrorCode::limit_exceeded, "65536"));
}

TEST(Safetensors, NestingCostsNoStack) {
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  EXPECT_TRUE(fails_with(parse(deep, ""), ErrorCode::corrupt_data));
  const std::string structure = "{\\\"version\\\":1,\\\"root\\\":" + std::string(1'000'000, '[');
  EXPECT_TRUE(fails_with(parse("{\"__metadata__\":{\"tensordict\":\"" + structure + "\"}}", ""),
                         ErrorCode::limit_exceeded));
}

Result<TensorDict> with_structure(std::string structure) {
  std::string escaped;
  for (const char c : structure) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return parse("{\"__metadata__\":{\"tensordict\":\"" + escaped +
                   "\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
               "ab");
}

std::string root(const std::string& keys, const std::string& batch = "[2]",
                 const std::string& names = "null") {
  return "{\"version\":1,\"root\":{\"batch_size\":" + batch + ",\"names\":" + names +
         ",\"keys\":{" + keys + "}}}";
}

TEST(Safetensors, StructureOfOthersIsUnderstood) {
  const TensorDict dict =
      with_structure(
          "{\"version\": 1, \"root\": {\"batch_size\": [2], \"names\": [null], "
          "\"class\": \"<class 'm.N'>\", \"stack_dim\": 0, \"keys\": {"
          "\"x/y\": {\"td\": {\"batch_size\": [2], \"names\": [\"t\"], \"keys\": {"
          "\"z\": {\"tensor\": \"a\"}, \"v\": {\"non_tensor\": [1, {\"k\": null}]}}}}}}}")
          .value();
  EXPECT_EQ(dict["x%2Fy/z"].shape(), Shape({2}));
  EXPECT_EQ(dict.value("x%2Fy/v"), Value(Value::List{1, Value::Map{{"k", nullptr}}}));
  EXPECT_EQ(dict.find_dict("x%2Fy").value().dimension_names(), Names({"t"}));
  EXPECT_TRUE(dict.dimension_names().empty());
}

TEST(Safetensors, BrokenStructuresAreRefused) {
  ASSERT_TRUE(succeeds(with_structure(root("\"a\":{\"tensor\":\"a\"}"))));
  const struct {
    std::string structure;
    ErrorCode code;
  } kCases[] = {
      {"", ErrorCode::corrupt_data},
      {"[]", ErrorCode::corrupt_data},
      {"{\"version\":2,\"root\":{}}", ErrorCode::version_mismatch},
      {"{\"version\":\"1\",\"root\":{}}", ErrorCode::version_mismatch},
      {"{\"version\":1}", ErrorCode::corrupt_data},
      {"{\"version\":1,\"root\":{}}", ErrorCode::corrupt_data},
      {root(""), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"b\"}"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":1}"), ErrorCode::corrupt_data},
      {root("\"a\":{}"), ErrorCode::corrupt_data},
      {root("\"a\":1"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[3]"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[-2]"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[2.0]"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "2"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
       ErrorCode::limit_exceeded},
      {root("\"a\":{\"tensor\":\"a\"}", "[2]", "[]"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[2]", "[1]"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"}", "[2]", "[\"" + std::string(256, 'n') + "\"]"),
       ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\",\"unbatched\":1}"), ErrorCode::corrupt_data},
      {root("\"__metadata__\":{\"tensor\":\"a\"}"), ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"},\"d\":{\"td\":{\"batch_size\":[],\"names\":null,\"keys\":{}}"
            "}"),
       ErrorCode::corrupt_data},
      {root("\"a\":{\"tensor\":\"a\"},\"v\":{\"non_tensor\":\"" +
            std::string(kMaxValuesBytes, 'v') + "\"}"),
       ErrorCode::limit_exceeded},
  };
  for (const auto& test : kCases)
    EXPECT_TRUE(fails_with(with_structure(test.structure), test.code))
        << test.structure.substr(0, 200);
}

TEST(Safetensors, TypesThatTheFormatLacksAreRefused) {
  const ScratchDir dir;
  for (const DTypeInfo& row : dtype_table()) {
    TensorDict dict;
    dict.set("x", Tensor::zeros(row.dtype, {2}).value());
    const auto saved = save_safetensors(dir.path() / "x", dict);
    if (row.safetensors_name.empty()) {
      EXPECT_TRUE(fails_with(saved, ErrorCode::unsupported_dtype, row.name));
    } else {
      ASSERT_TRUE(succeeds(saved)) << row.name;
      EXPECT_TRUE(bitwise_equal(load_safetensors(dir.path() / "x").value(), dict)) << row.name;
    }
  }
}

TEST(Safetensors, NamesWhatCannotBeOpened) {
  const ScratchDir dir;
  EXPECT_TRUE(fails_with(load_safetensors(dir.path() / "none"), ErrorCode::file_not_found, "none"));
  EXPECT_TRUE(fails_with(load_safetensors(dir.path()), ErrorCode::invalid_argument, "regular"));
  EXPECT_TRUE(fails_with(load_safetensors("/dev/zero"), ErrorCode::invalid_argument, "regular"));
  ASSERT_EQ(mkfifo((dir.path() / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(load_safetensors(dir.path() / "pipe"), ErrorCode::invalid_argument));
}

TEST(Safetensors, RefusedSavesLeaveNothing) {
  const ScratchDir dir;
  SaveOptions options;
  options.metadata = {{"tensordict", "x"}};
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "x", tree(), options),
                         ErrorCode::invalid_argument, "tensordict"));
  options.metadata = {{"a", "x"}, {"a", "y"}};
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "x", tree(), options),
                         ErrorCode::invalid_argument, "twice"));
  options.metadata = {{"a", "\xff"}};
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "x", tree(), options),
                         ErrorCode::invalid_argument, "UTF-8"));
  TensorDict far;
  far.set("x", Tensor::view(test::storage_on_gpu(4), 0, DType::u8, {4}).value());
  EXPECT_TRUE(fails_with(save_safetensors(dir.path() / "x", far), ErrorCode::unsupported_device));
  EXPECT_TRUE(dir.names().empty());
}

// A small tmpfs serves as a full disk, where a test may mount one.
TEST(Safetensors, AFullDiskIsStorageFullAndLeavesNothing) {
  const ScratchDir dir;
  if (mount("tendon-test", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  TensorDict dict;
  dict.set("x", Tensor::zeros(DType::u8, {1 << 20}).value());
  const auto saved = save_safetensors(dir.path() / "x", dict);
  const auto names = dir.names();
  ASSERT_EQ(umount(dir.path().c_str()), 0);
  EXPECT_TRUE(fails_with(saved, ErrorCode::storage_full, "/x"));
  EXPECT_TRUE(names.empty());
}

TEST(SafetensorsProperty, RandomDictsComeBackBitForBit) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::RandomDicts random(seed);
  const ScratchDir dir;
  for (int round = 0; round < 150; ++round) {
    const TensorDict dict = random.dict(test::RandomDicts::Types::for_files);
    const auto path = dir.path() / "x";
    ASSERT_TRUE(succeeds(save_safetensors(path, dict))) << dict;
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(succeeds(file)) << dict;
    ASSERT_TRUE(bitwise_equal(file->tensors(), dict)) << dict << file->tensors();
    ASSERT_EQ(file->tensors().keys(), dict.keys());
    ASSERT_EQ(*file->tensors().schema(), *dict.schema());

    // The same through the header alone: a receiver of the tensors would write this.
    SaveOptions options;
    options.header = file->header_bytes();
    ASSERT_TRUE(succeeds(save_safetensors(dir.path() / "y", dict, options)));
    ASSERT_EQ(contents(dir.path() / "y"), contents(path));
  }
}

TEST(SafetensorsProperty, ChangedBytesAreReadOrRefused) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const ScratchDir dir;
  ASSERT_TRUE(succeeds(save_safetensors(dir.path() / "x", tree())));
  const std::string whole = contents(dir.path() / "x");
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (std::uint64_t i = 1 + random() % 3; i > 0; --i)
      changed[random() % changed.size()] = static_cast<char>(random());
    const auto dict = parse_safetensors(storage_of(changed));
    if (!dict) continue;
    for (const auto& [path, tensor] : *dict) ASSERT_TRUE(bitwise_equal(tensor, tensor)) << path;
  }
}

}  // namespace
}  // namespace tendon
