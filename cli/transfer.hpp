// SPDX-License-Identifier: Apache-2.0
// The messages of `tendon send` and `tendon recv` over one pipe, in this order:
//   sender -> receiver  raw, tag announce, header {"name","size_bytes","tensor_count"}, bytes: the
//                       file up to its first tensor, unchanged
//   sender -> receiver  TensorDicts: the tensors in the order of the file, whole or in u8 slices
//   sender -> receiver  raw, tag finish, header {"sha256"} of the whole file
//   receiver -> sender  raw, tag verdict, at any time: {"sha256"}, or {"code","detail"} and the end
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/message.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

namespace tendon::cli {

enum class TransferTag : std::uint32_t { announce = 1, finish = 2, verdict = 3 };

/// Bytes of tensors in one message: a few of these under way keep both ends busy, and a slot of 4
/// MiB holds one.
inline constexpr std::uint64_t kChunkBytes = (4u << 20) - (64u << 10);
/// The most leaves of one message.
inline constexpr std::size_t kChunkLeaves = 1024;
/// The most bytes that the sender may have under way: they take memory of both ends, and pages that
/// must be touched first.
inline constexpr std::uint64_t kTransferCapBytes = 64u << 20;
/// The longest file name that is accepted from a peer.
inline constexpr std::size_t kMaxFileNameBytes = 200;

struct Announcement {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t tensor_count = 0;
};

/// The JSON of each message; the bytes that decode reads are not trusted.
[[nodiscard]] Result<std::string> encode(const Announcement& announcement);
[[nodiscard]] Result<Announcement> decode_announcement(Bytes json);
[[nodiscard]] Result<std::string> encode_sha256(std::string_view sha256);
[[nodiscard]] Result<std::string> decode_sha256(Bytes json);
[[nodiscard]] Result<std::string> encode_refusal(const Error& error);
/// Returns the receiver's SHA-256 of a success, or the error of its refusal.
[[nodiscard]] Result<std::string> decode_verdict(Bytes json, std::string_view peer);

/// Refuses a name that could leave the directory or confuse a terminal: permission_denied.
[[nodiscard]] Result<void> check_file_name(std::string_view name);

/// "tendon send (key:fleet, host a, pid 4711), proof key".
[[nodiscard]] std::string proved_text(const PeerIdentity& peer);

/// A range of bytes of one tensor of a file.
struct Piece {
  std::size_t entry_index = 0;     ///< in SafetensorsHeader::entries
  std::uint64_t offset_bytes = 0;  ///< inside the tensor
  std::uint64_t size_bytes = 0;

  [[nodiscard]] bool is_whole(const SafetensorsEntry& entry) const {
    return offset_bytes == 0 && size_bytes == entry.end_bytes - entry.begin_bytes;
  }
};

/// The tensor for a piece: the whole tensor itself, else u8 of one dimension; a view on the file.
[[nodiscard]] Result<Tensor> tensor_of(const SafetensorsFile& file, const Piece& piece);

/// Walks through the tensors of a file in the order of their bytes. Sender and receiver each have
/// one, and both must agree at every step.
///
/// Owns:    the order; the header must outlive it.
/// Threads: one.
/// Errors:  accept(): schema_mismatch, naming the expected and the received tensor.
/// Blocks:  never.
/// Cost:    one sort.
class FileWalk {
 public:
  explicit FileWalk(const SafetensorsHeader& header);

  [[nodiscard]] bool at_end() const noexcept { return position_ == order_.size(); }
  /// The pieces of the next message, at most `limit_bytes` with the padding of a packed layout.
  [[nodiscard]] std::vector<Piece> next(std::uint64_t limit_bytes);
  /// Returns the bytes of a received leaf, if it is the next piece.
  [[nodiscard]] Result<Bytes> accept(const std::string& path, const Tensor& tensor);
  /// The tensor bytes that the walk has passed.
  [[nodiscard]] std::uint64_t done_bytes() const noexcept { return done_bytes_; }

 private:
  [[nodiscard]] const SafetensorsEntry& current() const {
    return header_.entries[order_[position_]];
  }
  void advance(std::uint64_t size_bytes);

  const SafetensorsHeader& header_;
  std::vector<std::size_t> order_;
  std::size_t position_ = 0;
  std::uint64_t offset_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace tendon::cli
