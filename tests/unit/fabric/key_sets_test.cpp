// SPDX-License-Identifier: Apache-2.0
// Key expressions against their meaning, the sets of their keys, and against the answers of Zenoh.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <vector>

#include "unit/fabric/zenoh_answers.hpp"

namespace {

using tendon::KeyExpression;
using tendon::test::kZenohPairs;
using tendon::test::kZenohTexts;

using Words = std::vector<std::string>;

Words split(const std::string& text) {
  Words chunks;
  std::istringstream stream(text);
  for (std::string chunk; std::getline(stream, chunk, '/');) chunks.push_back(chunk);
  return chunks;
}

// Matches bytes against a chunk with "$*": the definition, in exponential time.
bool has_bytes(std::string_view form, std::string_view bytes) {
  if (form.empty()) return bytes.empty();
  if (form.starts_with("$*")) {
    return has_bytes(form.substr(2), bytes) || (!bytes.empty() && has_bytes(form, bytes.substr(1)));
  }
  return !bytes.empty() && form[0] == bytes[0] && has_bytes(form.substr(1), bytes.substr(1));
}

bool has_chunk(const std::string& form, const std::string& chunk) {
  if (form.starts_with('@') || chunk.starts_with('@')) return form == chunk;
  return form == "*" || has_bytes(form, chunk);
}

bool has_key(std::span<const std::string> form, std::span<const std::string> key) {
  if (form.empty()) return key.empty();
  if (form[0] == "**") {
    return has_key(form.subspan(1), key) ||
           (!key.empty() && !key[0].starts_with('@') && has_key(form, key.subspan(1)));
  }
  return !key.empty() && has_chunk(form[0], key[0]) && has_key(form.subspan(1), key.subspan(1));
}

// Returns every key over `chunks` with up to `longest` of them.
std::vector<Words> all_keys(const Words& chunks, std::size_t longest) {
  std::vector<Words> keys;
  std::vector<Words> last = {{}};
  for (std::size_t n = 0; n < longest; ++n) {
    std::vector<Words> next;
    for (const Words& key : last) {
      for (const std::string& chunk : chunks) {
        next.push_back(key);
        next.back().push_back(chunk);
      }
    }
    keys.insert(keys.end(), next.begin(), next.end());
    last = std::move(next);
  }
  return keys;
}

// Returns one bit for each of `keys`: whether it belongs to the expression.
std::vector<bool> keys_of(const KeyExpression& expression, const std::vector<Words>& keys) {
  const Words form = split(expression.text());
  std::vector<bool> bits;
  for (const Words& key : keys) bits.push_back(has_key(form, key));
  return bits;
}

KeyExpression random_expression(std::mt19937_64& random, const Words& chunks, std::size_t longest) {
  std::string text;
  const std::size_t count = 1 + random() % longest;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += '/';
    text += chunks[random() % chunks.size()];
  }
  return KeyExpression::canonize(text).value();
}

// The argument of `judge` for each of `count` random pairs.
struct Sets {
  const KeyExpression& a;
  const KeyExpression& b;
  bool meet = false;    // some key is in both
  bool inside = false;  // every key of b is in a
};

// `letters`: chunks of expressions; `keys`: representatives of all keys that matter to these.
void random_pairs(const Words& letters, std::size_t longest, const std::vector<Words>& keys,
                  int count, const std::function<void(const Sets&)>& judge) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    const KeyExpression a = random_expression(random, letters, longest);
    const KeyExpression b = random_expression(random, letters, longest);
    const std::vector<bool> in_a = keys_of(a, keys);
    const std::vector<bool> in_b = keys_of(b, keys);
    Sets sets{a, b, false, true};
    for (std::size_t k = 0; k < keys.size(); ++k) {
      sets.meet |= in_a[k] && in_b[k];
      sets.inside &= in_a[k] || !in_b[k];
    }
    SCOPED_TRACE(a.text() + " and " + b.text());
    judge(sets);
  }
}

// 'z' is in no expression: it stands for any match of a wildcard. If two expressions of three
// chunks have a common key, they have one of at most six chunks. Chunks that only one "**" takes
// are those that the other expression names.
TEST(KeySets, OfChunks) {
  const std::vector<Words> keys = all_keys({"a", "z", "@v"}, 6);
  random_pairs({"a", "*", "**", "@v"}, 3, keys, 1500, [](const Sets& sets) {
    const auto& [a, b, meet, inside] = sets;
    ASSERT_EQ(a.intersects(b), meet);
    ASSERT_EQ(b.intersects(a), meet);
    if (a.includes(b)) {
      ASSERT_TRUE(inside);
    }
    // With "**" in b Zenoh's answer may be no although every key is in a.
    if (b.text().find("**") == std::string::npos) {
      ASSERT_EQ(a.includes(b), inside);
    }
  });
}

TEST(KeySets, OfBytesInAChunk) {
  Words chunks;
  for (const Words& bytes : all_keys({"a", "b", "z"}, 6)) {
    std::string chunk;
    for (const std::string& byte : bytes) chunk += byte;
    chunks.push_back(chunk);
  }
  std::vector<Words> keys;
  for (const std::string& chunk : chunks) keys.push_back({chunk});
  Words letters;
  for (const Words& pieces : all_keys({"a", "b", "$*", "$*"}, 4)) {
    std::string chunk;
    for (const std::string& piece : pieces) chunk += piece;
    letters.push_back(chunk);
  }
  random_pairs(letters, 1, keys, 500, [](const Sets& sets) {
    const auto& [a, b, meet, inside] = sets;
    ASSERT_EQ(a.intersects(b), meet);
    ASSERT_EQ(b.intersects(a), meet);
    ASSERT_EQ(a.includes(b), inside);
  });
}

TEST(KeySets, OfBoth) {
  const std::vector<Words> keys = all_keys({"a", "ab", "b", "bz", "z", "@a"}, 4);
  random_pairs({"a", "a$*", "$*b", "a$*b", "*", "**", "@a", "@a$*"}, 4, keys, 1500,
               [](const Sets& sets) {
                 const auto& [a, b, meet, inside] = sets;
                 // A common key may be longer than those here.
                 if (meet) {
                   ASSERT_TRUE(a.intersects(b));
                 }
                 if (a.includes(b)) {
                   ASSERT_TRUE(inside);
                 }
                 if (a.includes(b)) {
                   ASSERT_TRUE(a.intersects(b));
                 }
                 ASSERT_EQ(a.intersects(b), b.intersects(a));
                 if (a.includes(b) && b.includes(a)) {
                   ASSERT_EQ(a, b);
                 }
               });
}

TEST(KeySets, AreJudgedAsZenohDoes) {
  for (const auto& [a_text, b_text, intersect, a_includes_b, b_includes_a] : kZenohPairs) {
    SCOPED_TRACE(std::string(a_text) + " and " + b_text);
    const KeyExpression a = KeyExpression::parse(a_text).value();
    const KeyExpression b = KeyExpression::parse(b_text).value();
    EXPECT_EQ(a.intersects(b), intersect != 0);
    EXPECT_EQ(b.intersects(a), intersect != 0);
    EXPECT_EQ(a.includes(b), a_includes_b != 0);
    EXPECT_EQ(b.includes(a), b_includes_a != 0);
  }
  for (const auto& [text, valid] : kZenohTexts) {
    EXPECT_EQ(KeyExpression::parse(text).has_value(), valid != 0) << text;
  }
}

}  // namespace
