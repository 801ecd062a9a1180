// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <string>
#include <tendon/tensor/atomic_file.hpp>

#include "core/failpoint.hpp"
#include "core/fd.hpp"
#include "core/file_limit.hpp"
#include "core/fork_guard.hpp"

namespace tendon::v0 {
namespace {

Error call_failed(std::string_view call, const std::filesystem::path& path, int errno_value) {
  return system_error("tensor.file", std::string(call) + "('" + path.string() + "')", errno_value);
}

Error existing_file(const std::filesystem::path& path) {
  return Error{ErrorCode::permission_denied, "tensor.file", "'" + path.string() + "' exists",
               EEXIST};
}

// A name beside `name` that no file has. A process id would not do: the next container may have the
// same, and the last one may have been killed.
std::string hidden_name(const std::string& name) {
  std::array<std::uint8_t, 8> random{};
  (void)getrandom(random.data(), random.size(), 0);
  // The final name may already be as long as a name can be.
  std::string hidden = "." + name.substr(0, 200) + ".tendon-";
  for (const std::uint8_t byte : random) {
    hidden += "0123456789abcdef"[byte >> 4];
    hidden += "0123456789abcdef"[byte & 15];
  }
  return hidden;
}

// Less the umask.
mode_t mode_for(FileReaders readers) {
  if (readers == FileReaders::owner_only) return 0600;
  return readers == FileReaders::everybody ? 0644 : 0666;
}

}  // namespace

struct AtomicFile::State {
  std::filesystem::path path;  // as the caller wrote it, for errors
  ExistingFile existing = ExistingFile::replace;
  FileReaders readers = FileReaders::by_umask;
  detail::OwnedFd directory;
  std::string name;    // in the directory
  std::string hidden;  // the file's name until commit; empty while it has none
  detail::OwnedFd fd;
  std::uint32_t process = detail::process_number();
  std::uint64_t written_bytes = 0;

  ~State() {
    // A forked child shares the file: it belongs to the parent.
    if (!hidden.empty() && process == detail::process_number())
      unlinkat(directory.get(), hidden.c_str(), 0);
  }

  Result<void> open_file();
  Result<void> link_nameless(const std::string& as) const;
  Result<void> link_hidden();
  Result<void> replace();
  Result<void> take_free_name();
};

// Opens a nameless file, or a hidden one if there are none.
Result<void> AtomicFile::State::open_file() {
  const mode_t mode = mode_for(readers);
  // A nameless file gets its name through /proc.
  if (access("/proc/self/fd", X_OK) == 0 && !TENDON_FAILPOINT("atomic_file.nameless"))
    fd = detail::OwnedFd(openat(directory.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
  if (fd) return {};
  std::string name_for_now = hidden_name(name);
  fd = detail::OwnedFd(
      openat(directory.get(), name_for_now.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode));
  if (!fd) return call_failed("open", path, errno);
  hidden = std::move(name_for_now);
  return {};
}

Result<void> AtomicFile::State::link_nameless(const std::string& as) const {
  const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
  if (linkat(AT_FDCWD, self.c_str(), directory.get(), as.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return {};
  return call_failed("linkat", path, errno);
}

// Takes the name, if no file has it, in one step. A file system may know RENAME_NOREPLACE (FAT
// does), hard links (NFS does), or both.
Result<void> AtomicFile::State::take_free_name() {
  if (hidden.empty()) return link_nameless(name);
  const int at = directory.get();
  if (!TENDON_FAILPOINT("atomic_file.noreplace") &&
      renameat2(at, hidden.c_str(), at, name.c_str(), RENAME_NOREPLACE) == 0) {
    hidden.clear();
    return {};
  }
  if (linkat(at, hidden.c_str(), at, name.c_str(), 0) != 0)
    return call_failed("linkat", path, errno);
  unlinkat(at, hidden.c_str(), 0);
  hidden.clear();
  return {};
}

Result<void> AtomicFile::State::replace() {
  if (hidden.empty()) {
    // Links straight to the final name if that is free: a kill then leaves a hidden file at no
    // moment.
    auto linked = link_nameless(name);
    if (linked || linked.error().system_errno != EEXIST) return linked;
    std::string name_for_now = hidden_name(name);
    TENDON_CHECK(link_nameless(name_for_now));
    hidden = std::move(name_for_now);
    (void)TENDON_FAILPOINT("atomic_file.hidden");
  }
  if (renameat(directory.get(), hidden.c_str(), directory.get(), name.c_str()) != 0)
    return call_failed("rename", path, errno);
  hidden.clear();
  return {};
}

AtomicFile::AtomicFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;
AtomicFile& AtomicFile::operator=(AtomicFile&&) noexcept = default;
AtomicFile::~AtomicFile() = default;

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, ExistingFile existing,
                                      FileReaders readers) {
  struct stat status {};
  if (existing == ExistingFile::keep && lstat(path.c_str(), &status) == 0)
    return existing_file(path);
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, "tensor.file",
                 "'" + path.string() + "' exists and is no regular file"};
  }
  auto state = std::make_unique<State>();
  state->path = path;
  state->existing = existing;
  state->readers = readers;
  state->name = path.filename().string();
  const std::filesystem::path parent =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  state->directory = detail::OwnedFd(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!state->directory) return call_failed("open", path, errno);
  TENDON_CHECK(state->open_file());
  return AtomicFile(std::move(state));
}

Result<void> AtomicFile::check_size(std::uint64_t size_bytes) const {
  return detail::check_file_size(size_bytes, ErrorCode::storage_full, "tensor.file",
                                 "'" + state_->path.string() + "' with a size");
}

Result<void> AtomicFile::write(Bytes bytes) { return write(std::span<const Bytes>(&bytes, 1)); }

Result<void> AtomicFile::write(std::span<const Bytes> pieces) {
  std::uint64_t size_bytes = state_->written_bytes;
  for (const Bytes& piece : pieces) size_bytes += piece.size();
  TENDON_CHECK(check_size(size_bytes));
  std::array<iovec, IOV_MAX> vectors;
  std::size_t next = 0;        // the first piece that is not whole in the file
  std::uint64_t in_piece = 0;  // its bytes in the file
  while (next < pieces.size()) {
    int count = 0;
    for (std::size_t i = next; i < pieces.size() && count < IOV_MAX; ++i) {
      const Bytes rest = i == next ? pieces[i].subspan(in_piece) : pieces[i];
      if (!rest.empty())
        vectors[static_cast<std::size_t>(count++)] = {const_cast<std::byte*>(rest.data()),
                                                      rest.size()};
    }
    if (count == 0) break;
    const ssize_t written = writev(state_->fd.get(), vectors.data(), count);
    if (written < 0) {
      if (errno == EINTR) continue;
      return call_failed("write", state_->path, errno);
    }
    state_->written_bytes += static_cast<std::uint64_t>(written);
    auto left = static_cast<std::uint64_t>(written);
    while (next < pieces.size() && left >= pieces[next].size() - in_piece) {
      left -= pieces[next].size() - in_piece;
      in_piece = 0;
      ++next;
    }
    in_piece += left;
  }
  return {};
}

std::uint64_t AtomicFile::written_bytes() const noexcept { return state_->written_bytes; }

Result<void> AtomicFile::commit() {
  State& state = *state_;
  if (!state.fd) {
    return Error{ErrorCode::invalid_argument, "tensor.file",
                 "'" + state.path.string() + "' was committed before"};
  }
  (void)TENDON_FAILPOINT("atomic_file.written");
  if (fsync(state.fd.get()) != 0) return call_failed("fsync", state.path, errno);
  if (TENDON_FAILPOINT("atomic_file.commit")) return call_failed("rename", state.path, EIO);
  const auto named =
      state.existing == ExistingFile::keep ? state.take_free_name() : state.replace();
  if (!named) return named.error().system_errno == EEXIST ? existing_file(state.path) : named;
  state.fd.reset();
  (void)TENDON_FAILPOINT("atomic_file.named");

  // Some file systems cannot sync a directory; the file itself is safe.
  const detail::OwnedFd entries(
      openat(state.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entries && fsync(entries.get()) != 0 && errno != EINVAL && errno != EBADF) {
    return system_error("tensor.file",
                        "'" + state.path.string() +
                            "' is whole and has its name, which a power failure may undo: fsync "
                            "of its directory",
                        errno);
  }
  return {};
}

}  // namespace tendon::v0
