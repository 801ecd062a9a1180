// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "openssl_peer.hpp"
#include "secure/record_layer.hpp"
#include "support/expect.hpp"

namespace tendon::test {

using detail::secure::SealerKind;

/// A time for tests that do not depend on it.
inline constexpr detail::secure::RecordLayer::TimePoint kNow{std::chrono::hours(1)};

inline detail::secure::TrafficSecret secret_of(int seed) {
  detail::secure::TrafficSecret secret;
  secret.bytes()[0] = static_cast<std::byte>(seed);
  return secret;
}

/// One end of a connection; the other end has the same two seeds, swapped.
inline detail::secure::RecordLayer end_of(SealerKind kind, int sends, int receives,
                                          const detail::secure::RecordLimits& limits = {}) {
  return detail::secure::RecordLayer::make(
             {.sending = secret_of(sends), .receiving = secret_of(receives)}, kind, limits)
      .value();
}

inline Buffer random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Buffer bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline void append(Buffer& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

/// Records of all of `content`.
inline Buffer sealed(detail::secure::RecordLayer& end, Bytes content,
                     detail::secure::RecordLayer::TimePoint now = kNow) {
  Buffer records;
  Buffer room(70'000);
  do {
    const auto done = end.seal(std::span(&content, 1), room, now).value();
    append(records, Bytes(room).first(done.written_bytes));
    content = content.subspan(done.taken_bytes);
  } while (!content.empty());
  return records;
}

inline Buffer sealed_end(detail::secure::RecordLayer& end) {
  Buffer room(detail::secure::RecordLayer::kLeastRoomBytes);
  room.resize(end.seal_end(room).value());
  return room;
}

inline Buffer sealed_switch(detail::secure::RecordLayer& end, int to) {
  Buffer room(detail::secure::RecordLayer::kLeastRoomBytes);
  room.resize(end.seal_switch(room, secret_of(to)).value());
  return room;
}

/// The contents of all whole records in `received`, or the error of the first bad one.
inline Result<Buffer> opened(detail::secure::RecordLayer& end, Buffer received,
                             std::size_t destination_bytes = detail::secure::kMaxContentBytes,
                             detail::secure::RecordLayer::TimePoint now = kNow) {
  using State = detail::secure::RecordLayer::Opened::State;
  Buffer content;
  Buffer destination(destination_bytes);
  MutableBytes left(received);
  while (true) {
    TENDON_TRY(record, end.open(left, destination, now));
    if (record.state != State::opened) return content;
    append(content, Bytes(destination).first(record.written_bytes));
    append(content, record.rest);
    left = left.subspan(record.taken_bytes);
  }
}

/// A test for each sealer.
class EachSealer : public testing::TestWithParam<SealerKind> {
 protected:
  void SetUp() override {
    if (const auto made = detail::secure::make_sealer(GetParam(), {}); !made)
      GTEST_SKIP() << made.error().detail;
  }
};

inline std::string sealer_name(const testing::TestParamInfo<SealerKind>& info) {
  return info.param == SealerKind::openssl ? "openssl" : "ipsec_mb";
}

}  // namespace tendon::test

#define TENDON_FOR_EACH_SEALER(suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                                   \
      Sealers, suite,                                                                         \
      testing::Values(tendon::test::SealerKind::openssl, tendon::test::SealerKind::ipsec_mb), \
      tendon::test::sealer_name)
