// SPDX-License-Identifier: Apache-2.0
// The key schedule and the nonces, against the values of RFC 8448, section 3 ("Simple 1-RTT
// Handshake"). All its traces use TLS_AES_128_GCM_SHA256, so OpenSSL opens its records here;
// openssl_test.cpp compares our records with OpenSSL's.
#include "secure/expand_label.hpp"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "openssl_peer.hpp"
#include "secure/record_protection.hpp"
#include "support/expect.hpp"

namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using tendon::Bytes;
using tendon::test::Buffer;
using tendon::test::fails_with;
using tendon::test::from_hex;

struct Side {
  const char* name;
  Buffer secret;
  Buffer key;
  Buffer iv;
  // Each side sends these 50 bytes, and close_notify next.
  std::uint64_t first_sequence;
  Buffer content_record;
  Buffer end_record;
};

std::vector<Side> sides() {
  return {
      {"client", from_hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"),
       from_hex("17422dda596ed5d9acd890e3c63f5051"), from_hex("5b78923dee08579033e523d9"), 0,
       from_hex(
           "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd5"
           "4a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4"),
       from_hex("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3")},
      // The server's record 0 is a ticket.
      {"server", from_hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643"),
       from_hex("9f02283b6c9c07efc26bb9f2ac92e356"), from_hex("cf782b88dd83549aadf1e984"), 1,
       from_hex(
           "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc60"
           "2dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d"),
       from_hex("1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9")},
  };
}

// The contents of `record`, with the type last.
Buffer open_by_openssl(const Buffer& key, const Nonce& nonce, Buffer record) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(
      EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  Buffer text(record.size() - kRecordHeaderBytes - kTagBytes);
  int size = 0;
  EVP_DecryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, as_octets(key.data()),
                     as_octets(nonce.data()));
  EVP_DecryptUpdate(context.get(), nullptr, &size, as_octets(record.data()), kRecordHeaderBytes);
  EVP_DecryptUpdate(context.get(), as_octets(text.data()), &size,
                    as_octets(record.data() + kRecordHeaderBytes), static_cast<int>(text.size()));
  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                      record.data() + record.size() - kTagBytes);
  EXPECT_EQ(EVP_DecryptFinal_ex(context.get(), as_octets(text.data()), &size), 1);
  return text;
}

TEST(ExpandLabel, KeysAndNoncesAreThoseOfRfc8448) {
  Buffer content(51);
  std::iota(reinterpret_cast<unsigned char*>(content.data()),
            reinterpret_cast<unsigned char*>(content.data()) + 50, 0);
  content.back() = std::byte{23};
  for (const Side& side : sides()) {
    SCOPED_TRACE(side.name);
    Buffer key(side.key.size());
    Buffer iv(side.iv.size());
    ASSERT_TRUE(expand_label("SHA2-256", side.secret, "key", key));
    ASSERT_TRUE(expand_label("SHA2-256", side.secret, "iv", iv));
    EXPECT_EQ(key, side.key);
    EXPECT_EQ(iv, side.iv);
    EXPECT_EQ(open_by_openssl(key, nonce_of(iv, side.first_sequence), side.content_record),
              content);
    EXPECT_EQ(open_by_openssl(key, nonce_of(iv, side.first_sequence + 1), side.end_record),
              from_hex("010015"));
  }
}

TEST(ExpandLabel, EachByteOfTheSequenceHasItsPlaceInTheNonce) {
  const Buffer iv = from_hex("ffffffff0000000000000000");
  const Nonce nonce = nonce_of(iv, 0x0102030405060708);
  EXPECT_TRUE(std::ranges::equal(nonce, from_hex("ffffffff0102030405060708")));
}

TEST(ExpandLabel, UnknownDigestIsAnErrorOfOurs) {
  ERR_clear_error();
  Buffer derived(16);
  EXPECT_TRUE(
      fails_with(expand_label("SHA2-0", derived, "key", derived), tendon::ErrorCode::internal));
  EXPECT_EQ(ERR_peek_error(), 0U) << "the queue is that of the program";
}

}  // namespace
