// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tendon/memory/storage.hpp>

namespace tendon::v0 {
namespace {

TEST(Storage, NothingIsLegal) {
  const Storage none;
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.size_bytes(), 0u);
  EXPECT_TRUE(none.bytes().empty());
  const Storage empty = Storage::allocate(0).value();
  EXPECT_EQ(empty.size_bytes(), 0u);
  EXPECT_EQ(empty.owner(), nullptr);
}

TEST(Storage, AllocatesAlignedWritableMemory) {
  for (const std::uint64_t size : {1ull, 63ull, 64ull, 65ull, 4097ull, 1ull << 20}) {
    const Storage storage = Storage::allocate(size).value();
    ASSERT_EQ(storage.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage.data()) % 64, 0u);
    EXPECT_EQ(storage.access(), Access::read_write);
    std::memset(storage.data(), 3, size);
    EXPECT_EQ(storage.bytes().back(), std::byte{3});
  }
}

TEST(Storage, CopiesShareAndTheLastOneReleases) {
  auto owner = std::make_shared<int>(5);
  const std::weak_ptr<int> watch = owner;
  std::byte memory[8] = {};
  Storage first(std::move(owner), memory, sizeof memory, Access::read_only);
  Storage second = first;
  EXPECT_EQ(second.data(), first.data());
  EXPECT_EQ(second.access(), Access::read_only);
  EXPECT_EQ(second.owner(), first.owner());
  first = Storage();
  EXPECT_FALSE(watch.expired());
  second = Storage();
  EXPECT_TRUE(watch.expired());
}

// Rounding up to the alignment must not wrap a size near 2^64 to a small block.
TEST(Storage, RefusesSizesNobodyHas) {
  for (const std::uint64_t size :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 62, ~std::uint64_t{0} - 63, ~std::uint64_t{0} - 64,
        std::uint64_t{1} << 63}) {
    const auto storage = Storage::allocate(size);
    ASSERT_FALSE(storage.has_value()) << size;
    EXPECT_EQ(storage.error().code, ErrorCode::resource_exhausted);
    EXPECT_NE(storage.error().detail.find(std::to_string(size)), std::string::npos);
  }
}

}  // namespace
}  // namespace tendon::v0
