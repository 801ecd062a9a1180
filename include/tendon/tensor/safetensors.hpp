// SPDX-License-Identifier: Apache-2.0
// Safetensors files: u64 length of the header, the header (one JSON object: name -> {dtype, shape,
// data_offsets}, and "__metadata__", a map of strings), the bytes of the tensors without gaps.
// Source: https://github.com/huggingface/safetensors, "Format". The tree of a TensorDict is kept in
// __metadata__["tensordict"] as tensordict 0.15.3 writes it, so both open each other's files.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/shape.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

namespace tendon {
inline namespace v0 {

/// Keys and texts in the order of the file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// One tensor as a header describes it.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
  std::uint64_t begin_bytes = 0;  ///< from the end of the header
  std::uint64_t end_bytes = 0;
};

/// A header, read and checked. The entries cover their data without gap or overlap, each has the
/// size that dtype and shape say, and no name appears twice.
///
/// Owns:    its tables.
/// Threads: a value.
/// Errors:  corrupt_data, limit_exceeded, unsupported_dtype; the bytes are not trusted.
/// Blocks:  never.
/// Cost:    one pass over the text; memory in proportion to it.
struct TENDON_API SafetensorsHeader {
  /// In the order of the header.
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
  /// Bytes of the length and the text, with padding: the offset of the data.
  std::uint64_t size_bytes = 0;
  /// Bytes of all tensors.
  std::uint64_t data_bytes = 0;

  /// Returns the length of the header at the front of a file, from its first 8 bytes. parse() needs
  /// so many bytes.
  [[nodiscard]] static Result<std::uint64_t> measure(Bytes file_start);
  /// Reads a header from the front of a file; more bytes may follow it.
  [[nodiscard]] static Result<SafetensorsHeader> parse(Bytes file_start);
};

/// An opened safetensors file or buffer.
///
/// Example:
///   Result<SafetensorsFile> file = SafetensorsFile::open("model.safetensors");
///   if (!file) std::cerr << file.error().message() << '\n';
///   for (const auto& [key, text] : file->metadata()) std::cout << key << " = " << text << '\n';
///   const TensorDict& weights = file->tensors();  // views on the mapped file
///   pipe.send(weights, 30s).value();
///   save_safetensors("copy.safetensors", weights, {.header = file->header_bytes()}).value();
///
/// Owns:    the mapping, together with every tensor of the file.
/// Threads: const calls are safe everywhere.
/// Errors:  file_not_found, permission_denied, corrupt_data, limit_exceeded, unsupported_dtype.
/// Blocks:  on the disk when pages are first touched.
/// Cost:    open reads the header only; no tensor is copied.
///
/// A file is mapped privately: its tensors may be written, but the changes stay in this process and
/// never reach the file. A process that shortens the file while it is mapped makes its readers die
/// of SIGBUS; replace files by renaming, as save_safetensors() does.
class TENDON_API SafetensorsFile {
 public:
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);
  /// Opens a whole file in memory.
  [[nodiscard]] static Result<SafetensorsFile> parse(Storage storage);

  /// Views on the file. Its tree is as __metadata__["tensordict"] describes (lazy stacks and
  /// tensorclasses as plain TensorDicts); else it is flat, one entry a name, in the order of the
  /// header.
  [[nodiscard]] const TensorDict& tensors() const& noexcept { return tensors_; }
  [[nodiscard]] TensorDict tensors() && noexcept { return std::move(tensors_); }
  [[nodiscard]] const SafetensorsHeader& header() const& noexcept { return header_; }
  /// The entries of __metadata__ that are not Tendon's: {"format", "pt"}. SaveOptions::metadata
  /// writes them again.
  [[nodiscard]] SafetensorsMetadata metadata() const;
  /// The file's first bytes, up to the data: length, text and padding.
  [[nodiscard]] Bytes header_bytes() const noexcept {
    return storage_.bytes().first(header_.size_bytes);
  }
  /// The whole file.
  [[nodiscard]] const Storage& storage() const& noexcept { return storage_; }

 private:
  SafetensorsFile(Storage storage, SafetensorsHeader header, TensorDict tensors);
  Storage storage_;
  SafetensorsHeader header_;
  TensorDict tensors_;
};

/// The options of saving a file.
struct SaveOptions {
  /// Further entries of __metadata__; "tensordict" is reserved and refused.
  SafetensorsMetadata metadata = {};
  /// If not empty, exactly these header bytes (of SafetensorsFile::header_bytes()) are written
  /// before the data, so that a copy equals its source byte for byte. schema_mismatch when they do
  /// not describe these tensors.
  Bytes header = {};
};

/// Returns the tensors of `SafetensorsFile::open(path)`, without SafetensorsFile::metadata().
[[nodiscard]] TENDON_API Result<TensorDict> load_safetensors(const std::filesystem::path& path);
/// Returns the tensors of `SafetensorsFile::parse(storage)`.
[[nodiscard]] TENDON_API Result<TensorDict> parse_safetensors(Storage storage);

/// Makes the header that save_safetensors() writes: a multiple of 64 bytes, for data in
/// Layout::safetensors. It describes the tree if a flat list of names would lose something:
/// nesting, batch sizes, values. unsupported_dtype for element types that the format lacks (c32,
/// c128, some eight-bit floats).
[[nodiscard]] TENDON_API Result<std::vector<std::byte>> make_safetensors_header(
    const TensorDict& dict, const SaveOptions& options = {});

/// Saves through an AtomicFile; contiguous leaves are written without a copy.
[[nodiscard]] TENDON_API Result<void> save_safetensors(const std::filesystem::path& path,
                                                       const TensorDict& dict,
                                                       const SaveOptions& options = {});

}  // namespace v0
}  // namespace tendon
