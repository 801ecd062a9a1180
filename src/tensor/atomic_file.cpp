// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string>
#include <tendon/tensor/atomic_file.hpp>

#include "core/failpoint.hpp"
#include "core/fd.hpp"
#include "core/fork_guard.hpp"

namespace tendon::inline v0 {
namespace {

Error call_failed(std::string_view call, const std::filesystem::path& path, int errno_value) {
  return system_error("tensor.file", std::string(call) + "('" + path.string() + "')", errno_value);
}

// A name beside `path` that nobody else uses: the process id and a count tell its users apart.
std::filesystem::path hidden_name(const std::filesystem::path& path) {
  static std::atomic<std::uint32_t> count = 0;
  std::string name = "." + path.filename().string();
  // The final name may already be as long as a name can be.
  name.resize(std::min<std::size_t>(name.size(), 200));
  name += ".tendon-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  return path.parent_path() / name;
}

}  // namespace

struct AtomicFile::State {
  std::filesystem::path path;
  std::filesystem::path hidden;  // the file's name until commit; empty while it has none
  detail::OwnedFd fd;
  std::uint32_t epoch = detail::fork_epoch();
  std::uint64_t written_bytes = 0;

  ~State() {
    // A forked child shares the file: it belongs to the parent.
    if (!hidden.empty() && epoch == detail::fork_epoch()) unlink(hidden.c_str());
  }

  // Gives a nameless file a hidden name.
  Result<void> link_to(const std::filesystem::path& name) const {
    const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
    return call_failed("linkat", name, errno);
  }
};

AtomicFile::AtomicFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;
AtomicFile& AtomicFile::operator=(AtomicFile&&) noexcept = default;
AtomicFile::~AtomicFile() = default;

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, "tensor.file",
                 "'" + path.string() + "' exists and is no regular file"};
  }
  auto state = std::make_unique<State>();
  state->path = path;
  const std::filesystem::path parent =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  constexpr mode_t kMode = 0666;  // less the umask
  // A nameless file is given its name through /proc.
  if (access("/proc/self/fd", X_OK) == 0)
    state->fd = detail::OwnedFd(open(parent.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  if (!state->fd) {
    const std::filesystem::path hidden = hidden_name(path);
    const int fd = open(hidden.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    if (fd < 0) return call_failed("open", path, errno);
    state->fd = detail::OwnedFd(fd);
    state->hidden = hidden;
  }
  return AtomicFile(std::move(state));
}

Result<void> AtomicFile::write(Bytes bytes) { return write(std::span<const Bytes>(&bytes, 1)); }

Result<void> AtomicFile::write(std::span<const Bytes> pieces) {
  std::array<iovec, IOV_MAX> vectors;
  std::size_t next = 0;        // the first piece that is not whole in the file
  std::uint64_t in_piece = 0;  // how much of it is
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
  if (fsync(state.fd.get()) != 0) return call_failed("fsync", state.path, errno);
  if (TENDON_FAILPOINT("atomic_file.commit")) return call_failed("rename", state.path, EIO);
  bool named = false;
  if (state.hidden.empty()) {
    // Straight to the final name where it is free: then there is no moment at which a kill leaves a
    // file.
    auto linked = state.link_to(state.path);
    named = linked.has_value();
    if (!named && linked.error().system_errno != EEXIST) return linked;
    if (!named) {
      const std::filesystem::path hidden = hidden_name(state.path);
      TENDON_CHECK(state.link_to(hidden));
      state.hidden = hidden;
    }
  }
  if (!named && rename(state.hidden.c_str(), state.path.c_str()) != 0)
    return call_failed("rename", state.path, errno);
  state.hidden.clear();
  state.fd.reset();

  const std::filesystem::path parent =
      state.path.has_parent_path() ? state.path.parent_path() : std::filesystem::path(".");
  const detail::OwnedFd directory(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory; the file itself is safe.
  if (directory && fsync(directory.get()) != 0 && errno != EINVAL && errno != EBADF)
    return call_failed("fsync", parent, errno);
  return {};
}

}  // namespace tendon::inline v0
