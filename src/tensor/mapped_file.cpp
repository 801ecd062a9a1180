// SPDX-License-Identifier: Apache-2.0
#include "tensor/mapped_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace tendon::v0::detail {
namespace {

struct Mapping {
  void* address;
  std::size_t size_bytes;
  Mapping(void* at, std::size_t size) : address(at), size_bytes(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(address, size_bytes); }
};

}  // namespace

OpenFile::OpenFile(OwnedFd fd, std::uint64_t size_bytes, MapMode mode, std::string path,
                   std::string_view where)
    : fd_(std::move(fd)),
      size_bytes_(size_bytes),
      mode_(mode),
      path_(std::move(path)),
      where_(where) {}

Result<OpenFile> OpenFile::open(const std::filesystem::path& path, std::string_view where,
                                MapMode mode) {
  const int access = mode == MapMode::read_write ? O_RDWR : O_RDONLY;
  OwnedFd fd(::open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(where, "open('" + path.string() + "')", errno);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0)
    return system_error(where, "fstat('" + path.string() + "')", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, where, "'" + path.string() + "' is no regular file"};
  }
  return OpenFile(std::move(fd), static_cast<std::uint64_t>(status.st_size), mode, path.string(),
                  where);
}

Error OpenFile::failure(std::string_view call) const {
  return system_error(where_, std::string(call) + "('" + path_ + "')", errno);
}

Result<std::vector<std::byte>> OpenFile::read_front(std::uint64_t size_bytes) const {
  std::vector<std::byte> bytes(size_bytes);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure("read");
    if (got == 0) {
      return Error{ErrorCode::corrupt_data, where_, "'" + path_ + "' became shorter while read"};
    }
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

Result<Storage> OpenFile::map() const {
  const bool may_write = mode_ != MapMode::read_only;
  // Pages that this process writes are its own, or the file's. Without NORESERVE a file larger than
  // the free memory could not be opened.
  const int flags =
      mode_ == MapMode::read_write ? MAP_SHARED : MAP_PRIVATE | (may_write ? MAP_NORESERVE : 0);
  void* const address =
      mmap(nullptr, size_bytes_, PROT_READ | (may_write ? PROT_WRITE : 0), flags, fd_.get(), 0);
  if (address == MAP_FAILED) return failure("mmap");
  return Storage(std::make_shared<Mapping>(address, size_bytes_), static_cast<std::byte*>(address),
                 size_bytes_, may_write ? Access::read_write : Access::read_only);
}

}  // namespace tendon::v0::detail
