// SPDX-License-Identifier: Apache-2.0
// Offers of GPUs on a link, by a peer that writes arbitrary words: a word that breaks a rule ends
// the link, on both transports.
#include <string>
#include <tendon/session/limits.hpp>

#include "raw_peer.hpp"
#include "raw_shm_peer.hpp"

namespace tendon::test {
namespace {

void say(RawPeer& peer, const Descriptor& word) { (void)peer.control(word); }
void say(RawShmPeer& peer, const Descriptor& word) { peer.publish(word); }

cuda::Uuid gpu_of(std::uint32_t number) {
  cuda::Uuid gpu{};
  gpu.bytes[0] = 0x7f;
  gpu.bytes[15] = static_cast<unsigned char>(number);
  return gpu;
}

Descriptor offer_of(std::uint32_t number) {
  Descriptor word;
  word.kind = MessageKind::device;
  word.tag = 1;
  word.schema = number;
  word.generation = 0x7f;
  word.offset = std::uint64_t{number} << 56;
  return word;
}

template <class Peer>
class OffersOfAPeer : public testing::Test {
 protected:
  void agree(std::uint16_t minor = 2) {
    peer.end.link->agree(Features::of_minor(minor), LinkRole::connector);
  }
  void tell(const Descriptor& word) {
    say(peer, word);
    peer.settle();
  }
  void expect_end(std::string_view text) {
    expect_violation(peer.end, text, "mallory");
    EXPECT_EQ(sink.failures.size(), 1u);
  }
  [[nodiscard]] cuda::Uuid offered(std::uint32_t number) {
    const Lock receiving(peer.end.link->receive_mutex());
    const cuda::Uuid* const gpu = peer.end.link->device_offers.of_peer(number);
    return gpu == nullptr ? cuda::Uuid{} : *gpu;
  }

  Peer peer;
  RecordingSink& sink = peer.end.attach(1);
};

struct Names {
  template <class Peer>
  static std::string GetName(int) {  // NOLINT: the name of googletest
    return std::is_same_v<Peer, RawPeer> ? "tcp" : "shm";
  }
};
using Peers = testing::Types<RawPeer, RawShmPeer>;
TYPED_TEST_SUITE(OffersOfAPeer, Peers, Names);

TYPED_TEST(OffersOfAPeer, AreKnownByTheirNumbers) {
  this->agree();
  for (std::uint32_t n = 0; n < kMaxDevicesPerLink; ++n) this->tell(offer_of(n));
  EXPECT_FALSE(this->peer.end.link->ended());
  for (std::uint32_t n = 0; n < kMaxDevicesPerLink; ++n) EXPECT_EQ(this->offered(n), gpu_of(n));
}

TYPED_TEST(OffersOfAPeer, WithoutTheFeatureEndTheLink) {
  this->agree(1);
  this->tell(offer_of(0));
  this->expect_end("without the feature `devices`");
}

TYPED_TEST(OffersOfAPeer, OnAPipeEndTheLink) {
  this->agree();
  Descriptor word = offer_of(0);
  word.pipe = 1;
  this->tell(word);
  this->expect_end("a word about the link on a pipe");
}

TYPED_TEST(OffersOfAPeer, WithValuesEndTheLink) {
  this->agree();
  Descriptor word = offer_of(0);
  word.values_bytes = 1;
  this->tell(word);
  this->expect_end("a control message with a body");
}

TYPED_TEST(OffersOfAPeer, WithAnInlineBodyEndTheLink) {
  this->agree();
  Descriptor word = offer_of(0);
  word.flags = Descriptor::kInline;
  word.payload_bytes = word.segment_or_inline_bytes = 16;
  this->tell(word);
  this->expect_end("a control message with a body");
}

TYPED_TEST(OffersOfAPeer, OutOfOrderEndTheLink) {
  this->agree();
  this->tell(offer_of(0));
  this->tell(offer_of(2));
  this->expect_end("out of order");
}

TYPED_TEST(OffersOfAPeer, OfOneGpuTwiceEndTheLink) {
  this->agree();
  this->tell(offer_of(0));
  Descriptor again = offer_of(0);
  again.schema = 1;
  this->tell(again);
  this->expect_end("offered twice");
}

TYPED_TEST(OffersOfAPeer, OfAnUnknownKindEndTheLink) {
  this->agree();
  Descriptor word = offer_of(0);
  word.tag = 99;
  this->tell(word);
  this->expect_end("unknown word about a GPU");
}

TYPED_TEST(OffersOfAPeer, BeyondTheLimitEndTheLink) {
  this->agree();
  for (std::uint32_t n = 0; n <= kMaxDevicesPerLink; ++n) this->tell(offer_of(n));
  this->expect_end("kMaxDevicesPerLink");
}

TEST(OffersToAPeer, AreSaidOnceAndInOrder) {
  RawPeer peer;
  Link& link = *peer.end.link;
  link.agree(Features::of_minor(2), LinkRole::connector);
  const auto post = [&](const Descriptor& word) { link.post(word); };
  for (const std::uint32_t n : {0u, 1u, 0u, 2u, 1u})
    EXPECT_EQ(link.device_offers.number_of(gpu_of(n), post), n);
  peer.settle();
  std::vector<Descriptor> offers;
  for (const Descriptor& word : peer.heard())
    if (word.kind == MessageKind::device) offers.push_back(word);
  ASSERT_EQ(offers.size(), 3u);
  for (std::uint32_t n = 0; n < 3; ++n) {
    const Descriptor wanted = offer_of(n);
    EXPECT_EQ(std::memcmp(&offers[n], &wanted, sizeof wanted), 0) << n;
  }
}

}  // namespace
}  // namespace tendon::test
