// SPDX-License-Identifier: Apache-2.0
#include "secure/shared_key.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::SecretBytes;
using detail::SharedKey;

SharedKey key_of(std::uint8_t first) {
  SecretBytes secret(detail::kSharedKeyBytes);
  for (std::byte& byte : secret.writable()) byte = std::byte{first++};
  return {"fleet", std::move(secret), {}};
}

TEST(SecretBytes, MovesAndIsNeverCopiedByAccident) {
  static_assert(!std::is_copy_constructible_v<SecretBytes>);
  static_assert(!std::is_copy_assignable_v<SecretBytes>);
  SecretBytes first = SecretBytes::copy_of(as_bytes("abc"));
  SecretBytes second = std::move(first);
  EXPECT_EQ(as_text(second.bytes()), "abc");
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move): it is empty then
  second = SecretBytes::copy_of(as_bytes("de"));
  EXPECT_EQ(as_text(second.bytes()), "de");
}

TEST(SharedKey, AFreshOneIsAnother) {
  const SharedKey one = detail::make_shared_key("a").value();
  const SharedKey other = detail::make_shared_key("a").value();
  EXPECT_EQ(one.secret.bytes().size(), detail::kSharedKeyBytes);
  EXPECT_FALSE(std::ranges::equal(one.secret.bytes(), other.secret.bytes()));
}

// HKDF as RFC 5869 defines it, computed by another program.
TEST(SharedKey, TheIdIsTheSameInAllVersions) {
  EXPECT_EQ(detail::key_id(key_of(0)).value(), "fb067f5a3a464460");
}

TEST(SharedKey, TheIdIsOfTheKeyAndNotOfItsLabel) {
  SharedKey renamed = key_of(0);
  renamed.label = "other";
  EXPECT_EQ(detail::key_id(renamed).value(), detail::key_id(key_of(0)).value());
  EXPECT_NE(detail::key_id(key_of(1)).value(), detail::key_id(key_of(0)).value());
}

TEST(SharedKey, LabelsAreShortWordsOfAscii) {
  for (const std::string legal : {"a", "7", "fleet-2", "a.b_c", "Key"})
    EXPECT_TRUE(detail::is_label(legal)) << legal;
  EXPECT_TRUE(detail::is_label(std::string(detail::kMaxLabelBytes, 'a')));
  for (const std::string illegal : {"", "-a", ".a", "_a", "a b", "a/b", "a:b", "a=", "gr\xc3\xbcn"})
    EXPECT_FALSE(detail::is_label(illegal)) << illegal;
  EXPECT_FALSE(detail::is_label(std::string(detail::kMaxLabelBytes + 1, 'a')));
}

}  // namespace
}  // namespace tendon::test
