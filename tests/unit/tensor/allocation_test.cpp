// SPDX-License-Identifier: Apache-2.0
// The packed form allocates nothing, and neither does reading a tree whose schema is known. The
// pipe's promise relies on this.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "tensor/destination_check.hpp"
#include "tensor/packed_copy.hpp"

namespace {
thread_local std::uint64_t allocation_count = 0;

void* counted(std::size_t size_bytes) {
  ++allocation_count;
  if (void* const memory = std::malloc(size_bytes == 0 ? 1 : size_bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(std::size_t size_bytes) { return counted(size_bytes); }
void* operator new[](std::size_t size_bytes) { return counted(size_bytes); }
void* operator new(std::size_t size_bytes, const std::nothrow_t&) noexcept {
  ++allocation_count;
  return std::malloc(size_bytes == 0 ? 1 : size_bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
// NOLINTEND(misc-new-delete-overloads)

namespace tendon {
namespace {

class Allocations {
 public:
  [[nodiscard]] std::uint64_t count() const { return allocation_count - before_; }

 private:
  std::uint64_t before_ = allocation_count;
};

TensorDict example() {
  TensorDict dict;
  dict.set("observation/image", Tensor::zeros(DType::u8, {3, 8, 8}).value());
  dict.set("observation/strided",
           Tensor::zeros(DType::f32, {4, 5}).value().transpose(0, 1).value());
  dict.set("reward", Tensor::zeros(DType::f32, {1}).value());
  return dict;
}

TEST(Allocations, AreCounted) {
  const Allocations allocations;
  const std::vector<int> memory(10);
  EXPECT_EQ(allocations.count(), 1u);
}

TEST(Allocations, PackedDictsNeedNone) {
  const auto schema = example().schema();
  const Storage storage = Storage::allocate(schema->layout(Layout::aligned).total_bytes).value();
  const Allocations allocations;
  std::uint64_t sum = 0;
  for (int i = 0; i < 100; ++i) {
    TensorDict dict = make_packed(schema, Layout::aligned, storage).value();
    TensorDict moved = std::move(dict);
    dict = std::move(moved);
    const TensorDict copy = dict;
    const Tensor image = copy.find("observation/image").value();
    sum += image.size_bytes() + copy.leaf(2).size_bytes() + leaf_view(copy, 1).size_bytes;
    sum += dict.schema()->size_bytes() + (dict.values() ? 1 : 0) + dict.leaf_count();
  }
  EXPECT_EQ(allocations.count(), 0u);
  EXPECT_GT(sum, 0u);
}

// The sizes and costs that the headers state. Other compilers and libraries may differ.
static_assert(sizeof(TensorDict) == 11 * sizeof(void*));
static_assert(sizeof(Tensor) > 300 && sizeof(Tensor) < 400);

TEST(Allocations, OfATreeAreFewForEachEntry) {
  constexpr std::uint64_t kEntries = 100;
  const Tensor tensor = Tensor::zeros(DType::f32, {1}).value();
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < kEntries; ++i) names.push_back("entry_" + std::to_string(i));
  TensorDict dict;
  const Allocations of_set;
  for (const std::string& name : names) dict.set(name, tensor);
  const std::uint64_t set_count = of_set.count();
  const Allocations of_copy;
  const TensorDict copy = dict;
  const std::uint64_t copy_count = of_copy.count();
  EXPECT_EQ(copy.leaf_count(), kEntries);
  EXPECT_GE(set_count, 3 * kEntries) << "the header says more than it costs";
  EXPECT_LE(set_count, 5 * kEntries);
  EXPECT_GE(copy_count, kEntries) << "the header says more than it costs";
  EXPECT_LE(copy_count, 3 * kEntries);
}

TEST(Allocations, PackingAndUnpackingKnownTreesNeedsNone) {
  const TensorDict source = example();
  const TensorDict target = example();
  const std::uint64_t size_bytes = source.schema()->layout(Layout::aligned).total_bytes;
  std::vector<std::byte> bytes(size_bytes);
  detail::pack_piece(source, Layout::aligned, 0, bytes);
  detail::unpack_piece(bytes, target, Layout::aligned, 0);
  ASSERT_TRUE(detail::check_destination(target).has_value());

  const Allocations allocations;
  for (int i = 0; i < 100; ++i) {
    detail::pack_piece(source, Layout::aligned, 0, bytes);
    ASSERT_TRUE(detail::check_destination(target).has_value());
    detail::unpack_piece(bytes, target, Layout::aligned, 0);
  }
  EXPECT_EQ(allocations.count(), 0u);
}

TEST(Allocations, ReplacingALeafKeepsTheSchema) {
  TensorDict dict = example();
  const auto schema = dict.schema();
  const Tensor reward = Tensor::zeros(DType::f32, {1}).value();
  for (int i = 0; i < 10; ++i) {
    dict.set("reward", reward);
    ASSERT_EQ(dict.schema().get(), schema.get());
  }
}

}  // namespace
}  // namespace tendon
