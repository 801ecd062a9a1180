// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <openssl/err.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "records.hpp"
#include "secure/sealer_choice.hpp"

namespace {

using namespace tendon::detail::secure;
using namespace tendon::test;
using tendon::Bytes;
using tendon::MutableBytes;

using Sealers = EachSealer;
TENDON_FOR_EACH_SEALER(Sealers);

AeadKey key_of(const Buffer& bytes) {
  AeadKey key;
  std::copy(bytes.begin(), bytes.end(), key.bytes().begin());
  return key;
}

Nonce nonce_from(const Buffer& bytes) {
  Nonce nonce;
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

// Seals `text` in two pieces.
Buffer seal(Sealer& sealer, const Nonce& nonce, Bytes header, Bytes text, std::size_t first_bytes) {
  std::vector<Bytes> pieces;
  for (const Bytes piece : {text.first(first_bytes), text.subspan(first_bytes)})
    if (!piece.empty()) pieces.push_back(piece);
  Buffer sealed(text.size() + kTagBytes);
  EXPECT_TRUE(sealer.seal(nonce, header, pieces, sealed));
  return sealed;
}

// Opens the first bytes into a front buffer, and the others in place; empty if the tag is wrong.
Buffer open(Sealer& sealer, const Nonce& nonce, Bytes header, Buffer sealed,
            std::size_t front_bytes) {
  Buffer text(front_bytes);
  if (!sealer.open(nonce, header, sealed, text)) return {};
  append(text, Bytes(sealed).first(sealed.size() - kTagBytes).subspan(front_bytes));
  return text;
}

TEST_P(Sealers, AgreeWithWycheproof) {
  std::ifstream file(TENDON_AES_GCM_VECTORS);
  const auto vectors = nlohmann::json::parse(file);
  int valid = 0;
  int invalid = 0;
  for (const auto& test : vectors.at("tests")) {
    SCOPED_TRACE("tcId " + std::to_string(test.at("tcId").get<int>()));
    const auto bytes_of = [&](const char* name) {
      return from_hex(test.at(name).get<std::string>());
    };
    const auto sealer = make_sealer(GetParam(), key_of(bytes_of("key"))).value();
    const Nonce nonce = nonce_from(bytes_of("iv"));
    const Buffer header = bytes_of("aad");
    const Buffer text = bytes_of("msg");
    Buffer sealed = bytes_of("ct");
    append(sealed, bytes_of("tag"));
    for (const std::size_t first_bytes : {std::size_t{0}, text.size() - 1, text.size() / 2}) {
      if (test.at("result") == "valid") {
        EXPECT_EQ(seal(*sealer, nonce, header, text, first_bytes), sealed);
        EXPECT_EQ(open(*sealer, nonce, header, sealed, first_bytes), text);
        ++valid;
      } else {
        EXPECT_NE(seal(*sealer, nonce, header, text, first_bytes), sealed);
        EXPECT_EQ(open(*sealer, nonce, header, sealed, first_bytes), Buffer());
        ++invalid;
      }
    }
  }
  EXPECT_EQ(valid, 3 * 37);
  EXPECT_EQ(invalid, 3 * 27);
}

TEST_P(Sealers, WriteTheSameAsOpenssl) {
  const Buffer key = random_bytes(32, 1);
  const auto sealer = make_sealer(GetParam(), key_of(key)).value();
  const auto openssl = make_sealer(SealerKind::openssl, key_of(key)).value();
  const Buffer header = random_bytes(5, 2);
  const Buffer all = random_bytes(16'385, 3);
  std::mt19937 random(4);
  std::size_t size = 1;
  for (unsigned round = 0; size <= all.size(); ++round) {
    SCOPED_TRACE("size " + std::to_string(size));
    const Nonce nonce = nonce_from(random_bytes(12, 100 + round));
    const Bytes text = Bytes(all).first(size);
    const std::size_t cut = random() % size;
    const Buffer sealed = seal(*sealer, nonce, header, text, cut);
    ASSERT_EQ(sealed, seal(*openssl, nonce, header, text, 0));
    const Buffer opened = open(*sealer, nonce, header, sealed, random() % size);
    ASSERT_TRUE(std::ranges::equal(opened, text));
    size += size < 300 || (size > 1000 && size < 1060) || size > 16'370 ? 1 : 1 + random() % 97;
  }
}

TEST_P(Sealers, WrongKeysNoncesAndHeadersOpenNothing) {
  const Buffer text = random_bytes(2000, 1);
  for (const std::size_t size : {1, 16, 1024, 1025, 2000}) {
    const Nonce nonce{std::byte{1}};
    const Buffer header(5);
    const auto sealer = make_sealer(GetParam(), key_of(Buffer(32))).value();
    const Buffer sealed = seal(*sealer, nonce, header, Bytes(text).first(size), 0);
    EXPECT_EQ(open(*sealer, nonce, header, sealed, 0).size(), size);
    EXPECT_EQ(open(*sealer, {}, header, sealed, 0), Buffer());
    EXPECT_EQ(open(*sealer, nonce, Buffer(4), sealed, 0), Buffer());
    const auto other = make_sealer(GetParam(), key_of(Buffer(1, std::byte{1}))).value();
    EXPECT_EQ(open(*other, nonce, header, sealed, 0), Buffer());
  }
}

TEST_P(Sealers, LeaveTheErrorsOfTheProgramAlone) {
  ERR_clear_error();
  ERR_raise(ERR_LIB_USER, 7);
  const unsigned long before = ERR_peek_last_error();
  const auto sealer = make_sealer(GetParam(), key_of(Buffer(32))).value();
  EXPECT_EQ(open(*sealer, {}, Buffer(5), Buffer(100), 10), Buffer());
  EXPECT_EQ(ERR_peek_last_error(), before);
  ERR_clear_error();
}

TEST(Sealer, AutomaticIsTheFasterOneWhereItIsBuilt) {
  EXPECT_TRUE(succeeds(make_sealer(SealerKind::automatic, {})));
}

TEST(Sealer, AMeasurementChoosesWhatIsAutomatic) {
  const SealerKind before = automatic_sealer();
  prefer_sealer(SealerKind::openssl);
  EXPECT_EQ(automatic_sealer(), SealerKind::openssl);
  EXPECT_TRUE(succeeds(make_sealer(SealerKind::automatic, {})));
  prefer_sealer(SealerKind::automatic);
  EXPECT_EQ(automatic_sealer(), before);
  EXPECT_EQ(before == SealerKind::ipsec_mb, make_sealer(SealerKind::ipsec_mb, {}).has_value());
}

}  // namespace
