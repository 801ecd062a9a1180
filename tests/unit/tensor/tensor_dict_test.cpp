// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <latch>
#include <random>
#include <sstream>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/random_dict.hpp"
#include "tensor/destination_check.hpp"
#include "tensor/tree.hpp"

namespace tendon {
namespace {

using test::fails_with;
using test::packed_copy;
using test::succeeds;
using Names = std::vector<std::string>;

static_assert(std::is_nothrow_move_constructible_v<TensorDict>);
static_assert(std::is_nothrow_move_assignable_v<TensorDict>);
static_assert(sizeof(TensorDict) <= 128);

std::string text_of(const TensorDict& dict) {
  std::ostringstream out;
  out << dict;
  return out.str();
}

Tensor numbers(std::initializer_list<float> values) {
  return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
}

TensorDict example() {
  TensorDict dict;
  dict.set("observation", Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
  dict.set("info/step", 7);
  dict.set("info/reward", numbers({0.5f}));
  return dict;
}

TEST(TensorDict, FindsWhatWasSet) {
  const TensorDict dict = example();
  EXPECT_EQ(dict["observation"].item<float>({1, 0}), 3);
  EXPECT_EQ(dict.value("info/step").as_i64(), 7);
  EXPECT_EQ(dict.find_dict("info").value()["reward"].item<float>({0}), 0.5f);
  EXPECT_EQ(dict.keys(), Names({"observation", "info"}));
  EXPECT_EQ(dict.leaf_count(), 2u);
  EXPECT_EQ(dict.size_bytes(), 20u);
  EXPECT_EQ(dict.kind_of("info"), EntryKind::dict);
  EXPECT_EQ(dict.kind_of("info/step"), EntryKind::value);
  EXPECT_EQ(dict.kind_of("info/reward"), EntryKind::tensor);
  EXPECT_FALSE(dict.empty());
}

TEST(TensorDict, MissingEntriesAreTold) {
  for (const TensorDict& dict : {example(), packed_copy(example())}) {
    EXPECT_TRUE(fails_with(dict.find("reward"), ErrorCode::not_found, "'observation', 'info'"));
    EXPECT_TRUE(fails_with(dict.find("info"), ErrorCode::not_found, "is a TensorDict"));
    EXPECT_TRUE(fails_with(dict.find("info/step"), ErrorCode::not_found, "non-tensor value"));
    EXPECT_TRUE(fails_with(dict.find_value("observation"), ErrorCode::not_found, "is a tensor"));
    EXPECT_TRUE(fails_with(dict.find_dict("observation"), ErrorCode::not_found, "is a tensor"));
    EXPECT_THROW(static_cast<void>(dict["nope"]), Exception);
    for (const char* path : {"", "/", "observation/", "/observation", "info//step", "a%", "%zz"})
      EXPECT_FALSE(dict.contains(path)) << path;
  }
}

TEST(TensorDict, AMissingEntryListsTheLevelThatLacksIt) {
  TensorDict deep = example();
  deep.set("info/below/x", Tensor::of<float>({1}, {1}));
  for (const TensorDict& dict : {deep, packed_copy(deep)}) {
    EXPECT_TRUE(fails_with(dict.find("info/nope"), ErrorCode::not_found, "; 'info' has '"));
    EXPECT_TRUE(
        fails_with(dict.find("info/below/nope/z"), ErrorCode::not_found, "; 'info/below' has 'x'"));
    EXPECT_TRUE(fails_with(dict.find_value("info/below/nope"), ErrorCode::not_found,
                           "; 'info/below' has 'x'"));
    EXPECT_TRUE(fails_with(dict.find("info/reward/z"), ErrorCode::not_found,
                           "; 'info/reward' is a tensor"));
    EXPECT_TRUE(fails_with(dict.find("nope/z"), ErrorCode::not_found,
                           "; the first level has 'observation'"));
    for (const char* path : {"", "/", "info/", "/info", "info//step", "a%", "%zz"})
      EXPECT_TRUE(fails_with(dict.find(path), ErrorCode::not_found)) << path;
  }
}

TEST(TensorDict, TheEmptyOneWorks) {
  const TensorDict dict;
  EXPECT_TRUE(dict.empty());
  EXPECT_EQ(dict.leaf_count(), 0u);
  EXPECT_EQ(dict.size_bytes(), 0u);
  EXPECT_EQ(dict.schema()->leaves().size(), 0u);
  EXPECT_EQ(dict.values(), nullptr);
  EXPECT_EQ(dict.begin(), dict.end());
  EXPECT_TRUE(fails_with(dict.find("a"), ErrorCode::not_found, "no entries"));
  EXPECT_EQ(text_of(dict), "TensorDict {}");
  EXPECT_TRUE(bitwise_equal(dict, TensorDict()));
  EXPECT_TRUE(bitwise_equal(dict, TensorDict(Shape{})));
  EXPECT_FALSE(bitwise_equal(dict, TensorDict(Shape{1})));
  TensorDict from;
  const TensorDict to = std::move(from);
  EXPECT_TRUE(to.empty());
}

TEST(TensorDict, SetReplacesInPlace) {
  TensorDict dict;
  dict.set("a", numbers({1}));
  dict.set("b", numbers({2}));
  dict.set("a", numbers({3, 4}));
  EXPECT_EQ(dict.keys(), Names({"a", "b"})) << "a replaced entry keeps its place";
  EXPECT_EQ(dict["a"].shape(), Shape({2}));
  dict.set("a", "now a text");
  EXPECT_EQ(dict.leaf_count(), 1u);
  EXPECT_EQ(dict.keys(), Names({"a", "b"}));
}

TEST(TensorDict, PathsLeadThroughDictsOnly) {
  TensorDict dict = example();
  EXPECT_TRUE(fails_with(dict.try_set("observation/x", Value(1)), ErrorCode::invalid_argument,
                         "'observation'"));
  EXPECT_TRUE(fails_with(dict.try_set("info/step/x", Value(1)), ErrorCode::invalid_argument,
                         "non-tensor value"));
  EXPECT_TRUE(fails_with(dict.try_set("", Value(1)), ErrorCode::invalid_argument));
  EXPECT_TRUE(bitwise_equal(dict, example())) << "nothing changed";
}

TEST(TensorDict, NamesWithSlashesAreEscaped) {
  TensorDict dict;
  dict.set("a%2Fb/50%25", numbers({1}));
  EXPECT_EQ(dict.keys(), Names({"a/b"}));
  EXPECT_TRUE(dict.contains("a%2fb/50%25"));
  EXPECT_FALSE(dict.contains("a/b"));
  const TensorDict packed = packed_copy(dict);
  EXPECT_EQ(packed.keys(), Names({"a/b"}));
  EXPECT_TRUE(succeeds(packed.find("a%2fb/50%25")));
  EXPECT_EQ(packed.find_dict("a%2fb").value().keys(), Names({"50%"}));
}

TEST(TensorDict, BatchSizesHoldForAllBelow) {
  TensorDict dict(Shape{4}, {"time"});
  EXPECT_EQ(dict.batch_size(), Shape({4}));
  EXPECT_EQ(dict.dimension_names(), Names({"time"}));
  EXPECT_TRUE(succeeds(dict.try_set("x", Tensor::zeros(DType::f32, {4, 2}).value())));
  EXPECT_TRUE(fails_with(dict.try_set("y", Tensor::zeros(DType::f32, {3}).value()),
                         ErrorCode::invalid_argument, "[4]"));
  EXPECT_TRUE(fails_with(dict.try_set("y", Tensor::zeros(DType::f32, {}).value()),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(
      succeeds(dict.try_set("y", Tensor::zeros(DType::f32, {3}).value(), Batching::exempt)));
  EXPECT_TRUE(succeeds(dict.try_set("sub", TensorDict(Shape{4, 2}))));
  EXPECT_TRUE(fails_with(dict.try_set("sub2", TensorDict(Shape{2})), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(dict.try_set("sub/z", Tensor::zeros(DType::f32, {4, 3}).value()),
                         ErrorCode::invalid_argument, "[4, 2]"));
  dict.set("new/leaf", Tensor::zeros(DType::f32, {4}).value());
  EXPECT_EQ(dict.find_dict("new").value().batch_size(), Shape({4})) << "as its parent";
  EXPECT_FALSE(dict.contains("sub2"));
  EXPECT_THROW(TensorDict(Shape{4}, {"a", "b"}), Exception);
  EXPECT_THROW(TensorDict(Shape{4}, {"\xff"}), Exception);
}

TEST(TensorDict, CopiesHaveTheirOwnEntriesAndShareTensors) {
  TensorDict dict = example();
  TensorDict copy = dict;
  copy.set("new", 1);
  copy.set("info/step", 8);
  EXPECT_FALSE(dict.contains("new"));
  EXPECT_EQ(dict.value("info/step").as_i64(), 7);
  EXPECT_EQ(copy["observation"].data(), dict["observation"].data());
  copy = copy;
  EXPECT_TRUE(copy.contains("new"));
  copy = dict;
  EXPECT_TRUE(bitwise_equal(copy, dict));
}

TEST(TensorDict, MayBePutIntoItself) {
  TensorDict dict = example();
  dict.set("self", dict);
  EXPECT_EQ(dict.leaf_count(), 4u);
  EXPECT_TRUE(bitwise_equal(dict.find_dict("self").value(), example()));
}

TEST(TensorDict, EraseRemovesAllBelow) {
  for (TensorDict dict : {example(), packed_copy(example())}) {
    EXPECT_TRUE(fails_with(dict.erase("nope"), ErrorCode::not_found));
    EXPECT_TRUE(succeeds(dict.erase("info")));
    EXPECT_FALSE(dict.contains("info/step"));
    EXPECT_EQ(dict.values(), nullptr);
    EXPECT_EQ(dict.leaf_count(), 1u);
    EXPECT_TRUE(succeeds(dict.erase("observation")));
    EXPECT_TRUE(bitwise_equal(dict, TensorDict()));
  }
}

TEST(TensorDict, IteratesInOrder) {
  TensorDict dict = example();
  dict.set("a", numbers({9}));
  for (const TensorDict& form : {dict, packed_copy(dict)}) {
    Names paths;
    for (const auto& [path, tensor] : form) {
      EXPECT_TRUE(bitwise_equal(tensor, dict[path]));
      paths.push_back(path);
    }
    EXPECT_EQ(paths, Names({"observation", "info/reward", "a"}));
  }
}

TEST(TensorDict, SchemaIsKeptUntilTheStructureChanges) {
  TensorDict dict = example();
  const auto schema = dict.schema();
  EXPECT_EQ(dict.schema().get(), schema.get());
  dict.set("observation", Tensor::of<float>({2, 2}, {5, 6, 7, 8}));
  EXPECT_EQ(dict.schema().get(), schema.get()) << "replaced by one alike";
  EXPECT_EQ(dict.leaf(0).item<float>({0, 0}), 5);
  EXPECT_EQ(leaf_view(dict, 0).data, dict["observation"].data());
  dict.set("info/step", 8);
  EXPECT_EQ(dict.schema().get(), schema.get()) << "values are no part of it";
  EXPECT_EQ(dict.values()->find("info/step")->as_i64(), 8);
  const TensorDict copy = dict;
  EXPECT_EQ(copy.schema().get(), schema.get());
  EXPECT_EQ(copy.leaf(0).item<float>({0, 0}), 5);
  dict.set("observation", Tensor::of<float>({2}, {5, 6}));
  EXPECT_NE(dict.schema().get(), schema.get());
  EXPECT_EQ(dict.schema()->leaves()[0].shape, Shape({2}));
}

TEST(TensorDict, ValuesAreOneMapByPath) {
  TensorDict dict = example();
  dict.set("a%2Fb", Value::Map{{"c", 1}});
  const auto values = dict.values();
  EXPECT_EQ(*values, Value(Value::Map{{"info/step", 7}, {"a%2Fb", Value::Map{{"c", 1}}}}));
  EXPECT_EQ(dict.values().get(), values.get()) << "kept";
  dict.set("info/step", 8);
  EXPECT_EQ(dict.values()->find("info/step")->as_i64(), 8);
}

TEST(PackedDict, LooksLikeTheTreeItWasMadeOf) {
  for (const Layout layout : {Layout::aligned, Layout::safetensors, Layout::tensordict}) {
    const TensorDict tree = example();
    TensorDict packed = packed_copy(tree, layout);
    ASSERT_NE(packed_view(packed), nullptr);
    EXPECT_EQ(packed_view(packed)->layout, layout);
    EXPECT_EQ(packed_view(tree), nullptr);
    EXPECT_TRUE(bitwise_equal(packed, tree));
    EXPECT_TRUE(bitwise_equal(tree, packed));
    EXPECT_EQ(packed.keys(), tree.keys());
    EXPECT_EQ(packed.value("info/step").as_i64(), 7);
    EXPECT_EQ(packed.kind_of("info/step"), EntryKind::value);
    EXPECT_EQ(packed.find_dict("info").value().value("step").as_i64(), 7);
    EXPECT_EQ(leaf_view(packed, 1).size_bytes, 4u);
    EXPECT_TRUE(leaf_view(packed, 1).contiguous);
    EXPECT_EQ(packed.leaf(1).data(), leaf_view(packed, 1).data);

    const auto schema = packed.schema();
    packed.set("info/reward", numbers({1.5f}));
    EXPECT_EQ(packed_view(packed), nullptr) << "a changed one is a tree";
    EXPECT_EQ(packed.schema().get(), schema.get()) << "and keeps its schema";
    EXPECT_EQ(packed["observation"].item<float>({1, 1}), 4);
    EXPECT_EQ(packed.value("info/step").as_i64(), 7);
    packed.set("more", 1);
    EXPECT_EQ(packed.values()->as_map().size(), 2u);
  }
}

TEST(PackedDict, WhatAnotherLibraryPackedIsRecognisedWhereItLies) {
  const TensorDict dict = example();
  const std::uint64_t size = dict.schema()->layout(Layout::tensordict).total_bytes;
  const Storage storage = Storage::allocate(size).value();
  const auto leaf_at = [&](std::uint64_t offset, Shape shape) {
    return Tensor::view(storage, offset, DType::f32, shape).value();
  };
  TensorDict there = dict;
  there.set("observation", leaf_at(0, {2, 2}));
  there.set("info/reward", leaf_at(16, {1}));
  const auto packed = packed_in(there, storage, Layout::tensordict);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed_view(*packed)->storage.data(), storage.data());
  EXPECT_EQ(packed_view(*packed)->layout, Layout::tensordict);
  EXPECT_TRUE(bitwise_equal(*packed, there));
  EXPECT_EQ(packed->value("info/step").as_i64(), 7);

  EXPECT_FALSE(packed_in(dict, storage, Layout::tensordict)) << "elsewhere";
  EXPECT_FALSE(packed_in(there, storage, Layout::aligned)) << "by another rule";
  const Storage short_of_padding(storage.owner(), storage.data(), size - 1, Access::read_write);
  EXPECT_FALSE(packed_in(there, short_of_padding, Layout::tensordict));
  there.set("observation", leaf_at(0, {2, 2}).transpose(0, 1).value());
  EXPECT_FALSE(packed_in(there, storage, Layout::tensordict)) << "in another order";
}

TEST(PackedDict, KeepsItsMemoryAlive) {
  const auto owner = std::make_shared<std::vector<std::byte>>(64);
  const std::weak_ptr<std::vector<std::byte>> watch = owner;
  Tensor leaf;
  {
    auto local = owner;
    const auto schema = Schema::make({{"x", DType::u8, {64}}}).value();
    const TensorDict dict =
        make_packed(schema, Layout::aligned,
                    Storage(std::move(local), owner->data(), 64, Access::read_only))
            .value();
    leaf = dict["x"];
  }
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(leaf.access(), Access::read_only);
  leaf = Tensor();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(PackedDict, RefusesTooLittleMemoryAndValuesWithoutAPlace) {
  const auto schema = example().schema();
  const std::uint64_t need = schema->layout(Layout::aligned).total_bytes;
  EXPECT_TRUE(fails_with(make_packed(schema, Layout::aligned, Storage::allocate(need - 1).value()),
                         ErrorCode::invalid_argument, std::to_string(need)));
  const Storage storage = Storage::allocate(need).value();
  const auto with = [&](Value values) {
    return make_packed(schema, Layout::aligned, storage,
                       std::make_shared<const Value>(std::move(values)));
  };
  EXPECT_TRUE(succeeds(with(Value::Map{{"info/step", 1}, {"top", 2}})));
  for (const char* path : {"nowhere/x", "observation", "info", "observation/x", "", "a//b", "%",
                           "info/%zz", "a%2fb"}) {
    if (std::string_view(path) == "%") continue;  // the empty name has a place
    EXPECT_FALSE(with(Value::Map{{path, 1}})) << path;
  }
  EXPECT_TRUE(fails_with(with(Value::Map{{"observation", 1}}), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(with(Value::Map{{"a", 1}, {"a", 2}}), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(with(Value(1)), ErrorCode::corrupt_data));
}

TEST(PackedDict, AllocateMakesRoomForEveryLeaf) {
  const TensorDict dict = TensorDict::allocate(example().schema()).value();
  EXPECT_EQ(*dict.schema(), *example().schema());
  for (const auto& [path, tensor] : dict)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u) << path;
}

TEST(TensorDict, PrintsItsTree) {
  TensorDict dict(Shape{2}, {"time"});
  dict.set("x", Tensor::of<float>({2}, {1, 2}));
  dict.set("in%2Fner/esc\x1b", Value("a\x1b"));
  EXPECT_EQ(text_of(dict),
            "TensorDict [time=2] {\n"
            "  x: f32 [2] {1, 2}\n"
            "  'in/ner': TensorDict [2] {\n"
            "    'esc\\x1b': 'a\\x1b'\n"
            "  }\n"
            "}");
  EXPECT_EQ(text_of(packed_copy(dict)), text_of(dict));
}

TEST(TensorDict, LimitsHoldAndNothingChangesBeyondThem) {
  TensorDict dict;
  const Tensor byte = Tensor::zeros(DType::u8, {}).value();
  for (std::size_t i = 0; i < kMaxLeaves; ++i) dict.set(std::to_string(i), byte);
  EXPECT_EQ(dict.schema()->leaves().size(), kMaxLeaves);
  EXPECT_TRUE(fails_with(dict.try_set("one/more", byte), ErrorCode::limit_exceeded, "65536"));
  EXPECT_FALSE(dict.contains("one")) << "no dict is left on the way to a refused entry";
  EXPECT_TRUE(succeeds(dict.try_set("17", byte))) << "replacing is no more";
  EXPECT_TRUE(succeeds(dict.try_set("value", Value(1)))) << "values are no tensors";
  EXPECT_TRUE(succeeds(dict.erase("0")));
  EXPECT_TRUE(succeeds(dict.try_set("one/more", byte)));
  EXPECT_EQ(dict.schema()->leaves().size(), kMaxLeaves);
}

TEST(TensorDict, DepthAndPathsAreLimitedForWholeSubtrees) {
  TensorDict deep;
  std::string path = "d";
  for (std::size_t i = 2; i < kMaxDepth; ++i) path += "/d";
  deep.set(path, Tensor());
  TensorDict outer;
  EXPECT_TRUE(succeeds(outer.try_set("x", deep)));
  EXPECT_TRUE(fails_with(outer.try_set("x/y", deep), ErrorCode::limit_exceeded, "32"));
  EXPECT_EQ(outer.schema()->leaves().size(), 1u);

  TensorDict longer;
  std::string name(kMaxNameBytes, 'n');
  std::string long_path = name;
  for (int i = 1; i < 15; ++i) long_path += "/" + name;
  longer.set(long_path, Tensor());
  EXPECT_TRUE(succeeds(outer.try_set("m", longer)));
  EXPECT_TRUE(
      fails_with(outer.try_set(name + "/" + name, longer), ErrorCode::limit_exceeded, "4096"));
  EXPECT_FALSE(outer.contains(name));
}

TEST(TensorDict, BytesOfAllTensorsAreLimited) {
  const Storage storage = Storage::allocate(1).value();
  const auto huge = [&](std::int64_t count) {
    return Tensor::view(storage, 0, DType::u8, {count}, {0}).value();
  };
  TensorDict dict;
  dict.set("a", huge(1ll << 62));
  EXPECT_TRUE(fails_with(dict.try_set("b", huge(1ll << 62)), ErrorCode::limit_exceeded));
  EXPECT_TRUE(succeeds(dict.try_set("b", huge(1ll << 61))));
  EXPECT_EQ(dict.schema()->size_bytes(), (1ull << 62) + (1ull << 61));
}

// schema() can describe every dict that set() accepts.
TEST(TensorDictProperty, RandomDictsInBothForms) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::RandomDicts random(seed);
  for (int round = 0; round < 200; ++round) {
    const TensorDict dict = random.dict(test::RandomDicts::Types::all);
    for (const Layout layout : {Layout::aligned, Layout::safetensors, Layout::tensordict}) {
      TensorDict packed = packed_copy(dict, layout);
      ASSERT_TRUE(bitwise_equal(packed, dict));
      std::size_t i = 0;
      for (const auto& [path, tensor] : packed) {
        ASSERT_TRUE(bitwise_equal(tensor, dict[path]));
        ASSERT_TRUE(bitwise_equal(dict.leaf(i++), tensor));
      }
      TensorDict tree = packed;
      tree.set("a value of its own", 1);
      ASSERT_TRUE(succeeds(tree.erase("a value of its own")));
      ASSERT_EQ(packed_view(tree), nullptr);
      ASSERT_TRUE(bitwise_equal(tree, dict)) << dict;
      ASSERT_EQ(*tree.schema(), *dict.schema());
    }
  }
}

TEST(TensorDictProperty, SumsStayRightWhateverIsSetAndErased) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::RandomDicts random(seed);
  for (int round = 0; round < 50; ++round) {
    TensorDict dict;
    for (int step = 0; step < 30; ++step) {
      const std::string path = escape_name(random.name());
      switch (random.pick(0, 4)) {
        case 0:
          static_cast<void>(dict.erase(path));
          break;
        case 1:
          static_cast<void>(dict.try_set(path, random.value()));
          break;
        case 2:
          static_cast<void>(dict.try_set(path + "/x", numbers({1})));
          break;
        case 3:
          static_cast<void>(dict.try_set(path, numbers({2})));
          break;
        default:
          static_cast<void>(dict.try_set(path, random.dict(test::RandomDicts::Types::all)));
          break;
      }
      std::size_t leaves = 0;
      for ([[maybe_unused]] const auto& leaf : dict) ++leaves;
      ASSERT_EQ(dict.leaf_count(), leaves);
      ASSERT_EQ(dict.schema()->leaves().size(), leaves);
    }
    // A copy made entry by entry has the same sums.
    TensorDict again;
    for (const std::string& key : dict.keys()) {
      const std::string path = escape_name(key);
      switch (*dict.kind_of(path)) {
        case EntryKind::tensor:
          again.set(path, dict[path], Batching::exempt);
          break;
        case EntryKind::dict:
          again.set(path, dict.find_dict(path).value());
          break;
        case EntryKind::value:
          again.set(path, dict.value(path));
          break;
      }
    }
    ASSERT_EQ(again.leaf_count(), dict.leaf_count());
    ASSERT_EQ(again.size_bytes(), dict.size_bytes());
  }
}

TEST(TensorDict, ConstCallsFromSeveralThreadsAreSafe) {
  for (int round = 0; round < 50; ++round) {
    const TensorDict dict = example();
    std::vector<std::jthread> threads;
    std::array<const Schema*, 4> schemas{};
    for (std::size_t i = 0; i < schemas.size(); ++i) {
      threads.emplace_back([&, i] {
        schemas[i] = dict.schema().get();
        EXPECT_EQ(dict.leaf(0).shape(), Shape({2, 2}));
        EXPECT_NE(dict.values(), nullptr);
        EXPECT_TRUE(succeeds(detail::check_destination(dict)));
      });
    }
    threads.clear();
    for (const Schema* schema : schemas) EXPECT_EQ(schema, schemas[0]);
  }
}

// The threads share the cached answer, and ThreadSanitizer checks it.
TEST(TensorDict, ThreadsMayAskAtOnceWhetherItCanBeADestination) {
  for (int round = 0; round < 200; ++round) {
    TensorDict dict;
    dict.set("a", Tensor::zeros(DType::f32, Shape({2})).value());
    std::latch start(2);
    const auto ask = [&] {
      start.arrive_and_wait();
      const auto answer = detail::Tree::destination_check(dict, [](const TensorDict&) {
        return Result<void>(Error{ErrorCode::invalid_argument, "test", "a text on the heap, kept"});
      });
      EXPECT_TRUE(!answer && answer.error().detail == "a text on the heap, kept");
    };
    const std::jthread other(ask);
    ask();
  }
}

}  // namespace
}  // namespace tendon
