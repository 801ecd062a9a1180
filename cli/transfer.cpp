// SPDX-License-Identifier: Apache-2.0
#include "cli/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/value.hpp>

#include "core/text.hpp"
#include "tensor/text.hpp"

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.transfer";

Error broken(std::string detail) {
  return Error{ErrorCode::protocol_violation, kWhere, std::move(detail)};
}

/// Copied first: the sender may share the memory and change it while it is read.
Result<Value> read_object(Bytes json) {
  const std::vector<std::byte> own(json.begin(), json.end());
  return parse_json(own);
}

/// The member `key` of an untrusted object, if it has the wanted kind.
Result<Value> member(const Value& object, std::string_view key, Value::Kind kind) {
  const Value* found = object.find(key);
  if (found == nullptr || found->kind() != kind) {
    return broken(
        fmt::format("the peer's message has no {} '{}': it is not `tendon send` or "
                    "`tendon recv`, or another version",
                    to_string(kind), key));
  }
  return *found;
}

Result<std::uint64_t> count_of(const Value& object, std::string_view key) {
  TENDON_TRY(value, member(object, key, Value::Kind::i64));
  if (value.as_i64() < 0) return broken(fmt::format("'{}' is {}", key, value.as_i64()));
  return static_cast<std::uint64_t>(value.as_i64());
}

Result<std::string> text_of(const Value& object, std::string_view key) {
  TENDON_TRY(value, member(object, key, Value::Kind::string));
  return std::move(value).as_string();
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<std::string> encode(const Announcement& announcement) {
  return to_json(Value(Value::Map{{"name", announcement.name},
                                  {"size_bytes", announcement.size_bytes},
                                  {"tensor_count", announcement.tensor_count}}));
}

Result<Announcement> decode_announcement(Bytes json) {
  TENDON_TRY(object, read_object(json));
  Announcement announcement;
  TENDON_TRY(name, text_of(object, "name"));
  TENDON_TRY(size_bytes, count_of(object, "size_bytes"));
  TENDON_TRY(tensor_count, count_of(object, "tensor_count"));
  return Announcement{std::move(name), size_bytes, tensor_count};
}

Result<std::string> encode_sha256(std::string_view sha256) {
  return to_json(Value(Value::Map{{"sha256", sha256}}));
}

Result<std::string> decode_sha256(Bytes json) {
  TENDON_TRY(object, read_object(json));
  TENDON_TRY(sha256, text_of(object, "sha256"));
  if (!is_sha256(sha256)) return broken("a SHA-256 that is not 64 hexadecimal digits");
  return sha256;
}

Result<std::string> encode_refusal(const Error& error) {
  // A detail may quote a name of any length; the rest of it would not help the other side.
  constexpr std::size_t kLongestDetail = 2000;
  return to_json(Value(Value::Map{{"code", static_cast<std::uint16_t>(error.code)},
                                  {"detail", detail::cleaned(error.detail, kLongestDetail)}}));
}

Result<std::string> decode_verdict(Bytes json, std::string_view peer) {
  TENDON_TRY(object, read_object(json));
  if (object.find("sha256") != nullptr) return decode_sha256(json);
  TENDON_TRY(number, count_of(object, "code"));
  TENDON_TRY(words, text_of(object, "detail"));
  const auto table = error_table();
  const auto row = std::ranges::find_if(table, [&](const ErrorInfo& info) {
    return static_cast<std::uint64_t>(info.code) == number;
  });
  return Error{row == table.end() ? ErrorCode::internal : row->code, kWhere,
               fmt::format("{} refused: {}", peer, detail::cleaned(words))};
}

Result<void> check_file_name(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return Error{
        ErrorCode::permission_denied, kWhere,
        fmt::format("the file name {} {}; legal are 1 to {} bytes of UTF-8 without '/', control "
                    "characters and characters that show nothing or turn the direction of "
                    "writing, not starting with '.'",
                    detail::quote_text(name), why, kMaxFileNameBytes)};
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kMaxFileNameBytes) return refuse(fmt::format("has {} bytes", name.size()));
  if (!detail::is_utf8(name)) return refuse("is not UTF-8");
  if (name.front() == '.') return refuse("starts with '.'");
  if (name.find('/') != std::string_view::npos) return refuse("has a '/'");
  if (!detail::is_text(name)) return refuse("has a control character");
  if (!detail::is_clean(name)) return refuse("has a character that cannot be seen");
  return {};
}

std::string proved_text(const PeerIdentity& peer) {
  return fmt::format("{}, proof {}", peer.to_string(), to_string(peer.proof));
}

Result<Tensor> tensor_of(const SafetensorsFile& file, const Piece& piece) {
  const SafetensorsEntry& entry = file.header().entries[piece.entry_index];
  const std::uint64_t offset = file.header().size_bytes + entry.begin_bytes + piece.offset_bytes;
  if (piece.is_whole(entry)) return Tensor::view(file.storage(), offset, entry.dtype, entry.shape);
  return Tensor::view(file.storage(), offset, DType::u8,
                      Shape{static_cast<std::int64_t>(piece.size_bytes)});
}

FileWalk::FileWalk(const SafetensorsHeader& header)
    : header_(header), order_(header.entries.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  // Sorted by place; an empty tensor is before the tensor that starts at the same byte.
  std::ranges::stable_sort(order_, {}, [&](std::size_t i) {
    return std::pair(header.entries[i].begin_bytes, header.entries[i].end_bytes);
  });
}

void FileWalk::advance(std::uint64_t size_bytes) {
  offset_bytes_ += size_bytes;
  done_bytes_ += size_bytes;
  if (offset_bytes_ == current().end_bytes - current().begin_bytes) {
    ++position_;
    offset_bytes_ = 0;
  }
}

std::vector<Piece> FileWalk::next(std::uint64_t limit_bytes) {
  std::vector<Piece> pieces;
  std::uint64_t used_bytes = 0;
  while (!at_end() && pieces.size() < kChunkLeaves) {
    const std::uint64_t left_bytes = current().end_bytes - current().begin_bytes - offset_bytes_;
    const std::uint64_t room_bytes = limit_bytes - used_bytes;
    // A tensor is cut only when no message could hold it whole.
    if (left_bytes > room_bytes && !pieces.empty()) break;
    const std::uint64_t size_bytes = std::min(left_bytes, room_bytes);
    pieces.push_back({order_[position_], offset_bytes_, size_bytes});
    advance(size_bytes);
    used_bytes +=
        (size_bytes + kLeafAlignmentBytes - 1) / kLeafAlignmentBytes * kLeafAlignmentBytes;
    if (used_bytes >= limit_bytes) break;
  }
  return pieces;
}

Result<Bytes> FileWalk::accept(const std::string& path, const Tensor& tensor) {
  const auto refuse = [&](std::string_view wanted) {
    return Error{ErrorCode::schema_mismatch, kWhere,
                 fmt::format("{} {} {} arrived where {} was due", detail::quote_text(path),
                             to_string(tensor.dtype()), to_string(tensor.shape()), wanted)};
  };
  if (at_end()) return refuse("the end of the file");
  const SafetensorsEntry& entry = current();
  const std::uint64_t entry_bytes = entry.end_bytes - entry.begin_bytes;
  const std::string wanted =
      fmt::format("{} {} {} from byte {}", detail::quote_text(entry.name), to_string(entry.dtype),
                  to_string(entry.shape), offset_bytes_);
  if (path != escape_name(entry.name)) return refuse(wanted);
  const std::uint64_t size_bytes = tensor.size_bytes();
  const bool is_entry =
      offset_bytes_ == 0 && tensor.dtype() == entry.dtype && tensor.shape() == entry.shape;
  const bool is_slice = tensor.dtype() == DType::u8 && tensor.dimension_count() == 1 &&
                        size_bytes > 0 && size_bytes <= entry_bytes - offset_bytes_;
  if (!is_entry && !is_slice) return refuse(wanted);
  TENDON_TRY(bytes, tensor.try_bytes());
  advance(size_bytes);
  return bytes;
}

}  // namespace tendon::cli
