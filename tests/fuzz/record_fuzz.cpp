// SPDX-License-Identifier: Apache-2.0
// Records that an end of a secure link may receive, from an attacker on the path or from the peer
// itself. The first byte selects the sender and the size of the destination. The rest is raw bytes,
// which never open, or content of any type that the peer has sealed.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "require.hpp"
#include "secure/record_layer.hpp"

namespace {

using namespace tendon::detail::secure;
using tendon::Bytes;
using tendon::ErrorCode;
using tendon::MutableBytes;
using tendon::test::require;
using State = RecordLayer::Opened::State;

constexpr RecordLayer::TimePoint kNow{};

// Memory of exactly its size, so that a sanitizer sees a byte beyond it.
struct Exact {
  explicit Exact(std::size_t bytes) : size(bytes), memory(new std::byte[bytes]()) {}
  explicit Exact(Bytes bytes) : Exact(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), memory.get());
  }
  [[nodiscard]] MutableBytes bytes() const { return {memory.get(), size}; }

  std::size_t size;
  std::unique_ptr<std::byte[]> memory;  // NOLINT(modernize-avoid-c-arrays)
};

// Seals each piece of the input as one record: its type, its length, its content.
std::vector<std::byte> seal_each(Bytes input) {
  auto peer = RecordProtection::make({}, SealerKind::openssl).value();
  std::vector<std::byte> records;
  while (input.size() >= 2) {
    const auto type = static_cast<ContentType>(input[0]);
    const std::size_t size =
        std::min(std::to_integer<std::size_t>(input[1]) * 65, input.size() - 2);
    const Bytes content = input.subspan(2, size);
    const std::span<const Bytes> pieces(&content, content.empty() ? 0 : 1);
    std::vector<std::byte> record(size + kRecordOverheadBytes);
    record.resize(peer.seal(type, pieces, record).value());
    records.insert(records.end(), record.begin(), record.end());
    // A valid KeyUpdate switches the peer to the next key.
    if (type == ContentType::handshake) (void)peer.advance();
    input = input.subspan(2 + size);
  }
  return records;
}

void open_all(SealerKind kind, Bytes records, std::size_t destination_bytes) {
  auto made = RecordLayer::make({}, kind);
  if (!made) return;
  const Exact received(records);
  const Exact destination(destination_bytes);
  MutableBytes left = received.bytes();
  while (true) {
    const auto done = made->open(left, destination.bytes(), kNow);
    if (!done) {
      require(done.error().code == ErrorCode::protocol_violation);
      require(made->end_of_stream().error().code == ErrorCode::protocol_violation);
      break;
    }
    require(done->taken_bytes <= left.size());
    require(done->written_bytes <= destination.size);
    require(done->written_bytes + done->rest.size() <= kMaxContentBytes);
    require(done->state != State::opened || done->taken_bytes >= kRecordOverheadBytes);
    require(done->state == State::opened || done->written_bytes + done->rest.size() == 0);
    if (done->state != State::opened) {
      require(made->end_of_stream().has_value() == (done->state == State::ended));
      break;
    }
    left = left.subspan(done->taken_bytes);
  }
  std::vector<std::byte> room(RecordLayer::kLeastRoomBytes);
  require(made->seal_end(room).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Bytes input = std::as_bytes(std::span(data, size_bytes));
  if (input.empty()) return 0;
  const auto choice = std::to_integer<std::size_t>(input[0]);
  input = input.subspan(1);
  const std::vector<std::byte> sealed =
      choice % 2 == 1 ? seal_each(input) : std::vector<std::byte>();
  const Bytes records = choice % 2 == 1 ? Bytes(sealed) : input;
  for (const SealerKind kind : {SealerKind::openssl, SealerKind::ipsec_mb})
    open_all(kind, records, choice / 2 * 130);
  return 0;
}
