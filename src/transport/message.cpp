// SPDX-License-Identifier: Apache-2.0
#include "transport/message.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/large_copy.hpp"
#include "tensor/copy.hpp"

namespace tendon::v0::detail {
namespace {

// The part of [begin, begin + size) that lies in [from, to), as offsets; empty when they do not
// meet.
struct Overlap {
  std::uint64_t from;
  std::uint64_t to;
  [[nodiscard]] std::uint64_t size() const { return to > from ? to - from : 0; }
};
Overlap overlap(std::uint64_t begin, std::uint64_t size, std::uint64_t from, std::uint64_t to) {
  return {std::max(begin, from), std::min(begin + size, to)};
}

class PieceCopier {
 public:
  PieceCopier(std::uint64_t offset, MutableBytes destination, std::uint64_t whole_bytes)
      : begin_(offset),
        end_(offset + destination.size()),
        to_(destination.data()),
        whole_bytes_(whole_bytes) {}

  void bytes(std::uint64_t at, Bytes source) {
    const Overlap common = overlap(at, source.size(), begin_, end_);
    if (common.size() == 0) return;
    const Bytes wanted = source.subspan(common.from - at, common.size());
    const MutableBytes place = place_of(common);
    // A loan lies in the slot it is "copied" to.
    if (place.data() != wanted.data()) copy_part(place, wanted, whole_bytes_);
  }
  void strided(std::uint64_t at, const Tensor& source, std::uint64_t size_bytes) {
    const Overlap common = overlap(at, size_bytes, begin_, end_);
    if (common.size() != 0) gather_piece(source, common.from - at, place_of(common));
  }
  // What an earlier use left in this memory is nobody's business.
  void zero(std::uint64_t at, std::uint64_t size_bytes) {
    const Overlap common = overlap(at, size_bytes, begin_, end_);
    if (common.size() != 0) std::memset(place_of(common).data(), 0, common.size());
  }

 private:
  [[nodiscard]] MutableBytes place_of(const Overlap& common) const {
    return {to_ + (common.from - begin_), common.size()};
  }
  const std::uint64_t begin_;
  const std::uint64_t end_;
  std::byte* const to_;
  const std::uint64_t whole_bytes_;
};

}  // namespace

IncomingBody IncomingBody::of_failure(Error error) {
  IncomingBody body;
  body.place = Place::failed;
  body.owner = std::make_shared<const Error>(std::move(error));
  return body;
}

std::span<const BodyPart> parts_from(const SendOp& op, std::uint64_t offset) {
  const auto first = std::partition_point(
      op.parts.begin(), op.parts.end(),
      [offset](const BodyPart& part) { return part.offset + part.size_bytes <= offset; });
  return {first, op.parts.end()};
}

Bytes contiguous_body(const SendOp& op, std::uint64_t offset, std::uint64_t size_bytes) {
  const auto parts = parts_from(op, offset);
  if (parts.empty()) return {};
  const BodyPart& first = parts.front();
  const bool covers = first.strided == nullptr && first.offset <= offset &&
                      offset + size_bytes <= first.offset + first.size_bytes;
  return covers ? first.bytes.subspan(offset - first.offset, size_bytes) : Bytes();
}

void copy_body(const SendOp& op, std::uint64_t offset, MutableBytes destination,
               std::uint64_t whole_bytes) {
  const std::uint64_t payload_bytes = op.descriptor.payload_bytes;
  const std::uint64_t end = offset + destination.size();
  PieceCopier copy(offset, destination, whole_bytes);
  if (op.loaned != nullptr && op.parts.empty()) {
    copy.bytes(0, Bytes(op.loaned->slot().memory).first(payload_bytes));
  } else if (offset < payload_bytes) {
    std::uint64_t at = offset;
    for (const BodyPart& part : parts_from(op, offset)) {
      if (part.offset >= end) break;
      if (part.offset > at) copy.zero(at, part.offset - at);
      if (part.strided != nullptr)
        copy.strided(part.offset, *part.strided, part.size_bytes);
      else
        copy.bytes(part.offset, part.bytes);
      at = part.offset + part.size_bytes;
    }
    if (at < payload_bytes) copy.zero(at, payload_bytes - at);
  }
  copy.bytes(payload_bytes, op.values);
  copy.bytes(payload_bytes + op.values.size(), op.header);
  copy.bytes(payload_bytes + op.values.size() + op.header.size(), op.device_part);
}

}  // namespace tendon::v0::detail
