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

/// What becomes of a file that has the name already.
enum class ExistingFile : std::uint8_t { replace, keep };

/// The users that may read a file: those that the umask leaves (0666 less the umask), or its owner
/// alone (mode 0600), as a file of keys wants it.
enum class FileReaders : std::uint8_t { by_umask, owner_only };

/// A file that appears under its name only when it is whole: bytes go to a nameless file in the
/// same directory (where the file system has none, to a hidden one), and commit gives it the name.
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
///          permission_denied, too_many_open_files, system; after an error only dropping it makes
///          sense.
/// Blocks:  on the disk.
/// Cost:    one write call a write; commit waits until the disk has it (fsync of file and
///          directory).
class TENDON_API AtomicFile {
 public:
  /// Begins a file that will be called `path`, in the directory that has this path now. What has
  /// the name stays until commit, which replaces it (a symbolic link itself, not what it leads to),
  /// or fails with `keep`: permission_denied with system_errno EEXIST, here already if it can be
  /// seen. `keep` needs a file system with nameless files, hard links or RENAME_NOREPLACE.
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path,
                                                 ExistingFile existing = ExistingFile::replace,
                                                 FileReaders readers = FileReaders::by_umask);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  /// Could it have so many bytes in the end? storage_full beyond RLIMIT_FSIZE. What is long to make
  /// asks before.
  [[nodiscard]] Result<void> check_size(std::uint64_t size_bytes) const;
  /// Appends. All of it is written or an error is returned.
  [[nodiscard]] Result<void> write(Bytes bytes);
  /// Appends the pieces in order, in as few system calls as can be.
  [[nodiscard]] Result<void> write(std::span<const Bytes> pieces);
  [[nodiscard]] std::uint64_t written_bytes() const noexcept;
  /// Makes it durable and gives it its name. Once.
  [[nodiscard]] Result<void> commit();

 private:
  struct State;
  explicit AtomicFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace v0
}  // namespace tendon
