// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU: functions that read elements with the CPU refuse them, in any form, before they
// touch one. Functions that only name them accept them.
#include "tensor/on_cpu.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tendon/tensor/consolidated.hpp>
#include <tendon/tensor/memmap.hpp>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/storage_on_gpu.hpp"
#include "tensor/destination_check.hpp"

namespace tendon::test {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 1};

Tensor on_gpu(const Shape& shape = {4}) {
  return Tensor::view(storage_on_gpu(4096, kGpu), 0, DType::f32, shape).value();
}

TensorDict tree_on_gpu() {
  TensorDict dict;
  dict.set("near", Tensor::zeros(DType::f32, {4}).value());
  dict.set("far", on_gpu());
  return dict;
}

TensorDict packed_on_gpu() {
  TensorDict dict;
  dict.set("far", Tensor::zeros(DType::f32, {4}).value());
  return make_packed(dict.schema(), Layout::aligned, storage_on_gpu(4096, kGpu)).value();
}

TEST(OnGpu, EachViewSaysWhereItsMemoryIs) {
  const Tensor whole = on_gpu({2, 3, 4});
  EXPECT_EQ(whole.device(), kGpu);
  EXPECT_EQ(whole.slice(1, 0, 2).value().device(), kGpu);
  EXPECT_EQ(whole.select(0, 1).value().device(), kGpu);
  EXPECT_EQ(whole.transpose(0, 2).value().device(), kGpu);
  EXPECT_EQ(whole.reshape({6, 4}).value().device(), kGpu);
  EXPECT_EQ(whole.contiguous().value().device(), kGpu);
  const Storage part = whole.storage().part(16, 32);
  EXPECT_EQ(part.device(), kGpu);
  EXPECT_EQ(part.data(), whole.storage().data() + 16);
  EXPECT_EQ(part.read_only().device(), kGpu);
  EXPECT_EQ(part.read_only().access(), Access::read_only);
  EXPECT_EQ(Tensor().device(), cpu());
}

TEST(OnGpu, APackedDictHasItsLeavesThere) {
  const TensorDict packed = packed_on_gpu();
  EXPECT_EQ(packed["far"].device(), kGpu);
  EXPECT_EQ(leaf_view(packed, 0).device, kGpu);
  TensorDict tree = packed;
  tree.set("step", 1);  // it is a tree from here on
  ASSERT_EQ(packed_view(tree), nullptr);
  EXPECT_EQ(tree["far"].device(), kGpu);
}

TEST(OnGpu, OneIsPackedOnlyInMemoryOfItsOwnDevice) {
  const Storage memory = storage_on_gpu(4096, kGpu);
  TensorDict tree;
  tree.set("far", Tensor::view(memory, 0, DType::f32, {4}).value());
  EXPECT_TRUE(packed_in(tree, memory, Layout::aligned));
  const Storage elsewhere(memory.owner(), memory.data(), memory.size_bytes(), memory.access());
  EXPECT_FALSE(packed_in(tree, elsewhere, Layout::aligned));
}

TEST(OnGpu, WhatNamesItsElementsOnlyTakesIt) {
  const Tensor tensor = on_gpu();
  std::ostringstream text;
  text << tensor << tree_on_gpu() << packed_on_gpu();
  EXPECT_NE(text.str().find("cuda:1"), std::string::npos);
  EXPECT_TRUE(bitwise_equal(tensor, tensor));
  EXPECT_FALSE(bitwise_equal(tensor, on_gpu()));
  EXPECT_FALSE(bitwise_equal(tensor, Tensor::zeros(DType::f32, {4}).value()));
  EXPECT_EQ(tree_on_gpu().schema()->leaves().size(), 2u);
}

TEST(OnGpu, WhatReadsItsElementsRefusesIt) {
  const ScratchDir folder;
  const Tensor tensor = on_gpu({2, 2});
  const Tensor strided = tensor.transpose(0, 1).value();
  using Check = std::function<Result<void>()>;
  const auto without_value = [](auto result) -> Result<void> {
    if (!result) return std::move(result).error();
    return {};
  };
  const std::vector<std::pair<std::string, Check>> of_tensors{
      {"try_span", [&] { return without_value(tensor.try_span<float>()); }},
      {"try_bytes", [&] { return without_value(tensor.try_bytes()); }},
      {"try_mutable_bytes", [&] { return without_value(tensor.try_mutable_bytes()); }},
      {"contiguous", [&] { return without_value(strided.contiguous()); }},
      {"parse_safetensors",
       [&] { return without_value(parse_safetensors(storage_on_gpu(4096, kGpu))); }},
      {"parse_consolidated",
       [&] { return without_value(parse_consolidated(storage_on_gpu(4096, kGpu))); }},
  };
  for (const auto& [name, check] : of_tensors) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(fails_with(check(), ErrorCode::unsupported_device, "cuda:1"));
  }
  EXPECT_THROW((void)tensor.item<float>({0, 0}), Exception);
  EXPECT_THROW(tensor.set_item<float>({0, 0}, 1), Exception);
  for (const TensorDict& dict : {tree_on_gpu(), packed_on_gpu()}) {
    SCOPED_TRACE(packed_view(dict) == nullptr ? "tree" : "packed");
    const std::vector<std::pair<std::string, Check>> of_dicts{
        {"save_safetensors",
         [&] { return save_safetensors(folder.path() / "x.safetensors", dict); }},
        {"save_memmap", [&] { return save_memmap(folder.path() / "tree", dict); }},
        {"save_consolidated", [&] { return save_consolidated(folder.path() / "one", dict); }},
        {"check_destination", [&] { return detail::check_destination(dict); }},
        {"check_on_cpu", [&] { return detail::check_on_cpu(dict, "here"); }},
    };
    for (const auto& [name, check] : of_dicts) {
      SCOPED_TRACE(name);
      const auto refused = check();
      EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "cuda:1"));
      EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "far"));
    }
  }
}

}  // namespace
}  // namespace tendon::test
