// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon {
inline namespace v0 {

/// How a file that has the name already is treated.
enum class ExistingFile : std::uint8_t { replace, keep };

/// The users that may read a file: those that the umask allows (0666 less the umask); its owner
/// alone (mode 0600), for files of keys; or, for certificates, all that the umask allows, while
/// only its owner may write it (0644 less the umask).
enum class FileReaders : std::uint8_t { by_umask, owner_only, everybody };

/// A file that appears under its name only when it is whole. Bytes are written to a nameless file
/// in the same directory (to a hidden one if the file system has none), and commit() names it.
///
/// Example:
///   AtomicFile file = AtomicFile::create("weights.bin", ExistingFile::keep).value();
///   file.check_size(batch.size_bytes()).value();
///   for (const auto& [path, tensor] : batch) file.write(tensor.bytes()).value();
///   if (Result<void> done = file.commit(); !done)
///     std::cerr << done.error().message() << '\n';  // there is no weights.bin then
///
/// Owns:    the file until commit; dropped before, it leaves nothing behind. A kill may leave a
///          hidden file ".NAME.tendon-...": while it replaces another file, or on a file system
///          without nameless files.
/// Threads: one at a time.
/// Errors:  storage_full (also beyond RLIMIT_FSIZE, without SIGXFSZ), file_not_found,
///          permission_denied, too_many_open_files, system; after an error only drop it.
/// Blocks:  on the disk.
/// Cost:    one write call a write; commit() waits until the disk has it (fsync of file and
///          directory).
class TENDON_API AtomicFile {
 public:
  /// Begins a file that will be called `path`, in the directory that has this path now. A file of
  /// that name stays until commit(), which replaces it (a symbolic link itself, not its target), or
  /// fails with `keep`. That failure is permission_denied with system_errno EEXIST; create()
  /// reports it already if it sees the file. `keep` needs a file system with nameless files, hard
  /// links or RENAME_NOREPLACE.
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path,
                                                 ExistingFile existing = ExistingFile::replace,
                                                 FileReaders readers = FileReaders::by_umask);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  /// storage_full if the file could not hold so many bytes because of RLIMIT_FSIZE. Ask before data
  /// that takes long to make.
  [[nodiscard]] Result<void> check_size(std::uint64_t size_bytes) const;
  /// Appends all bytes, or returns an error.
  [[nodiscard]] Result<void> write(Bytes bytes);
  /// Appends the pieces in order, in as few system calls as possible.
  [[nodiscard]] Result<void> write(std::span<const Bytes> pieces);
  [[nodiscard]] std::uint64_t written_bytes() const noexcept;
  /// Makes the file durable and gives it its name. Call it once.
  [[nodiscard]] Result<void> commit();

 private:
  struct State;
  explicit AtomicFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace v0
}  // namespace tendon
