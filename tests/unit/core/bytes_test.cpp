// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <tendon/core/bytes.hpp>

namespace tendon {
namespace {

TEST(Bytes, TextAndBackIsTheSameMemory) {
  const std::string text("a\0b", 3);
  const Bytes bytes = as_bytes(text);
  EXPECT_EQ(bytes.size(), 3u);
  EXPECT_EQ(static_cast<const void*>(bytes.data()), text.data());
  EXPECT_EQ(as_text(bytes), text);
  EXPECT_EQ(static_cast<const void*>(as_text(bytes).data()), text.data());
}

TEST(Bytes, NothingIsLegal) {
  EXPECT_TRUE(as_bytes("").empty());
  EXPECT_TRUE(as_text(Bytes()).empty());
}

TEST(Bytes, WritableBytesMayBeRead) {
  std::byte storage[2] = {std::byte{1}, std::byte{2}};
  const MutableBytes writable(storage);
  const Bytes readable = writable;
  writable[0] = std::byte{9};
  EXPECT_EQ(readable[0], std::byte{9});
}

}  // namespace
}  // namespace tendon
