// SPDX-License-Identifier: Apache-2.0
// Our records against those of OpenSSL, which makes the handshake and stays at one end, while a
// RecordLayer replaces the other end.
#include <gtest/gtest.h>
#include <openssl/err.h>

#include <memory>

#include "records.hpp"

namespace {

using namespace tendon::detail::secure;
using namespace tendon::test;
using tendon::Bytes;
using tendon::ErrorCode;

class AgainstOpenssl : public testing::TestWithParam<std::tuple<SealerKind, OpensslEnd>> {
 protected:
  void SetUp() override {
    if (const auto made = make_sealer(kind(), {}); !made) GTEST_SKIP() << made.error().detail;
    ours_ = std::make_unique<RecordLayer>(begin({}));
  }
  [[nodiscard]] SealerKind kind() const { return std::get<0>(GetParam()); }
  RecordLayer begin(const RecordLimits& limits) {
    peer_ = std::make_unique<OpensslPeer>(std::get<1>(GetParam()));
    return RecordLayer::make(peer_->take_secrets(), kind(), limits).value();
  }
  // Exchanges data once in both directions.
  void exchange(unsigned seed) {
    const Buffer there = random_bytes(100 + seed, seed);
    EXPECT_EQ(peer_->read(sealed(*ours_, there)), there);
    const Buffer back = random_bytes(3000 + seed, seed);
    EXPECT_EQ(opened(*ours_, peer_->write(back)).value(), back);
  }

  std::unique_ptr<OpensslPeer> peer_;
  std::unique_ptr<RecordLayer> ours_;
};

std::string name_of(const testing::TestParamInfo<AgainstOpenssl::ParamType>& tested) {
  const auto [kind, end] = tested.param;
  return sealer_name({kind, 0}) + (end == OpensslEnd::client ? "_server" : "_client");
}
INSTANTIATE_TEST_SUITE_P(Ends, AgainstOpenssl,
                         testing::Combine(testing::Values(SealerKind::openssl,
                                                          SealerKind::ipsec_mb),
                                          testing::Values(OpensslEnd::client, OpensslEnd::server)),
                         name_of);

TEST_P(AgainstOpenssl, RecordsOfEverySizeBothWays) {
  const Buffer all = random_bytes(kMaxContentBytes, 1);
  std::mt19937 random(2);
  for (std::size_t size = 0; size <= all.size();
       size += size < 70 || size > all.size() - 40 ? 1 : 1 + random() % 199) {
    SCOPED_TRACE("size " + std::to_string(size));
    const Bytes content = Bytes(all).first(std::min(size, all.size()));
    ASSERT_TRUE(std::ranges::equal(peer_->read(sealed(*ours_, content)), content));
    ASSERT_TRUE(std::ranges::equal(opened(*ours_, peer_->write(content), random() % 20'000).value(),
                                   content));
  }
}

TEST_P(AgainstOpenssl, ALargeStreamBothWays) {
  const Buffer all = random_bytes(1'000'001, 1);
  EXPECT_EQ(peer_->read(sealed(*ours_, all)), all);
  EXPECT_EQ(opened(*ours_, peer_->write(all), 5000).value(), all);
}

TEST_P(AgainstOpenssl, PaddedRecordsOfOpensslAreRead) {
  SSL_set_block_padding(peer_->ssl(), 512);
  const Buffer content = random_bytes(777, 1);
  const Buffer record = peer_->write(content);
  EXPECT_GT(record.size(), 777 + kRecordOverheadBytes);
  EXPECT_EQ(opened(*ours_, record, 100).value(), content);
  EXPECT_EQ(opened(*ours_, peer_->write(content), 2000).value(), content);
}

TEST_P(AgainstOpenssl, OpensslUpdatesItsKey) {
  for (unsigned round = 1; round < 5; ++round) {
    ASSERT_EQ(SSL_key_update(peer_->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    exchange(round);
  }
}

TEST_P(AgainstOpenssl, OpensslAsksForUpdatesAndGetsOneAnswer) {
  for (unsigned round = 1; round < 5; ++round) {
    const Buffer content = random_bytes(10, round);
    for (int request = 0; request < 3; ++request) {
      ASSERT_EQ(SSL_key_update(peer_->ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
      EXPECT_EQ(opened(*ours_, peer_->write(content)).value(), content);
    }
    const Buffer answer = sealed(*ours_, content);
    EXPECT_EQ(answer.size(), 10 + 2 * kRecordOverheadBytes + kKeyUpdateBytes);
    EXPECT_EQ(peer_->read(answer), content);
    exchange(round);
  }
}

TEST_P(AgainstOpenssl, WeUpdateOurKey) {
  *ours_ = begin({.records = 3});
  for (unsigned round = 1; round < 9; ++round) exchange(round);
}

TEST_P(AgainstOpenssl, CloseNotifyIsAnEndBothWays) {
  peer_->read(sealed_end(*ours_));
  EXPECT_EQ(peer_->last_error(), SSL_ERROR_ZERO_RETURN);
  EXPECT_TRUE(fails_with(ours_->end_of_stream(), ErrorCode::peer_lost));
  SSL_shutdown(peer_->ssl());
  EXPECT_EQ(opened(*ours_, peer_->sent()).value(), Buffer());
  EXPECT_TRUE(succeeds(ours_->end_of_stream()));
}

TEST_P(AgainstOpenssl, OpensslUnderstandsOurAlerts) {
  Buffer record = peer_->write(random_bytes(30, 1));
  record.back() ^= std::byte{1};
  EXPECT_TRUE(fails_with(opened(*ours_, record), ErrorCode::protocol_violation));
  peer_->read(sealed_end(*ours_));
  EXPECT_EQ(peer_->last_error(), SSL_ERROR_SSL);
  EXPECT_EQ(ERR_GET_REASON(ERR_get_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
}

TEST_P(AgainstOpenssl, WeUnderstandItsAlerts) {
  Buffer record = sealed(*ours_, random_bytes(30, 1));
  record.back() ^= std::byte{1};
  peer_->read(record);
  EXPECT_EQ(peer_->last_error(), SSL_ERROR_SSL);
  ERR_clear_error();
  EXPECT_TRUE(fails_with(opened(*ours_, peer_->sent()), ErrorCode::protocol_violation, "alert 20"));
  EXPECT_EQ(sealed_end(*ours_), Buffer()) << "nothing is said to a peer that has ended the link";
}

}  // namespace
