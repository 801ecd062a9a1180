// SPDX-License-Identifier: Apache-2.0
#include "secure/record_protection.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>

#include "secure/expand_label.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kDigest = "SHA2-384";
constexpr std::string_view kWhere = "secure.record";

std::array<std::byte, kRecordHeaderBytes> header_of(std::size_t sealed_bytes) {
  return {static_cast<std::byte>(ContentType::application_data), std::byte{3}, std::byte{3},
          static_cast<std::byte>(sealed_bytes >> 8), static_cast<std::byte>(sealed_bytes)};
}

// The number of bytes without the zeros at the end.
std::size_t without_padding(Bytes bytes) {
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                 [](std::byte byte) { return byte != std::byte{0}; });
  return static_cast<std::size_t>(bytes.rend() - last);
}

}  // namespace

Nonce nonce_of(Bytes iv, std::uint64_t sequence) {
  Nonce nonce{};
  std::copy_n(iv.begin(), nonce.size(), nonce.begin());
  for (std::size_t i = 0; i < sizeof sequence; ++i)
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(sequence >> (8 * i));
  return nonce;
}

Result<RecordProtection> RecordProtection::make(TrafficSecret secret, SealerKind kind,
                                                std::uint64_t first_sequence) {
  RecordProtection made(kind, first_sequence);
  TENDON_CHECK(made.use(std::move(secret)));
  return made;
}

Result<void> RecordProtection::use(TrafficSecret secret) {
  AeadKey key;
  Secret<sizeof(Nonce)> iv;
  TENDON_CHECK(expand_label(kDigest, secret.bytes(), "key", key.bytes()));
  TENDON_CHECK(expand_label(kDigest, secret.bytes(), "iv", iv.bytes()));
  TENDON_TRY(sealer, make_sealer(kind_, key));
  secret_ = std::move(secret);
  iv_ = std::move(iv);
  sealer_ = std::move(sealer);
  return {};
}

Result<void> RecordProtection::advance() {
  TENDON_CHECK(check_process());
  TrafficSecret next;
  TENDON_CHECK(expand_label(kDigest, secret_.bytes(), "traffic upd", next.bytes()));
  return replace(std::move(next));
}

Result<void> RecordProtection::replace(TrafficSecret secret) {
  TENDON_CHECK(use(std::move(secret)));
  sequence_ = 0;
  return {};
}

Result<void> RecordProtection::check_process() const {
  if (process_ == process_number()) [[likely]]
    return {};
  return Error{ErrorCode::forked, kWhere,
               "the link is of the process from which this one was forked: connect again here"};
}

Result<Nonce> RecordProtection::next_nonce() {
  TENDON_CHECK(check_process());
  if (sequence_ == std::numeric_limits<std::uint64_t>::max()) {
    return Error{ErrorCode::limit_exceeded, kWhere,
                 "no sequence number is left under this key: the link has to end"};
  }
  return nonce_of(iv_.bytes(), sequence_++);
}

Result<std::size_t> RecordProtection::seal(ContentType type, std::span<const Bytes> pieces,
                                           MutableBytes record) {
  TENDON_TRY(nonce, next_nonce());
  const auto type_byte = static_cast<std::byte>(type);
  std::array<Bytes, kMaxPieces + 1> text;
  auto* const end = std::copy(pieces.begin(), pieces.end(), text.data());
  *end = Bytes(&type_byte, kTypeBytes);
  std::size_t sealed_bytes = kTypeBytes + kTagBytes;
  for (const Bytes piece : pieces) sealed_bytes += piece.size();

  const auto header = header_of(sealed_bytes);
  std::copy(header.begin(), header.end(), record.begin());
  if (!sealer_->seal(nonce, header, std::span(text).first(pieces.size() + 1),
                     record.subspan(kRecordHeaderBytes, sealed_bytes))) {
    return Error{ErrorCode::internal, kWhere, "libcrypto failed to seal a record"};
  }
  return kRecordHeaderBytes + sealed_bytes;
}

Result<RecordProtection::Opened> RecordProtection::open(Bytes header, MutableBytes sealed,
                                                        MutableBytes front) {
  TENDON_TRY(nonce, next_nonce());
  const std::size_t text_bytes = sealed.size() - kTagBytes;
  // The last byte is left out: in a record without zeros it is the type, and `front` has room only
  // for content.
  front = front.first(std::min(front.size(), text_bytes - 1));
  if (!sealer_->open(nonce, header, sealed, front)) {
    OPENSSL_cleanse(sealed.data(), sealed.size());
    if (!front.empty()) OPENSSL_cleanse(front.data(), front.size());
    return Error{ErrorCode::protocol_violation, kWhere,
                 "record " + std::to_string(sequence_ - 1) +
                     " under this key has a wrong tag: the peer sent something else, or not now"};
  }
  const MutableBytes rest = sealed.first(text_bytes).subspan(front.size());
  if (const std::size_t bytes = without_padding(rest); bytes != 0)
    return Opened{static_cast<ContentType>(rest[bytes - 1]), front.size() + bytes - kTypeBytes};
  if (const std::size_t bytes = without_padding(front); bytes != 0)
    return Opened{static_cast<ContentType>(front[bytes - 1]), bytes - kTypeBytes};
  return Opened{};
}

}  // namespace tendon::v0::detail::secure
