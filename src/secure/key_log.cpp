// SPDX-License-Identifier: Apache-2.0
#include "secure/key_log.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <tendon/observe/log.hpp>

#include "secure/credential_file.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kWhere = "secure.keylog";
constexpr std::string_view kNewFile =
    "whoever has read it reads the links of which it has the secrets";

}  // namespace

Result<std::shared_ptr<const KeyLog>> KeyLog::open(const std::string& path) {
  // Without O_NONBLOCK, open() would wait for the reader of a FIFO.
  OwnedFd fd(::open(path.c_str(),
                    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                    S_IRUSR | S_IWUSR));
  const int failure = fd ? 0 : errno;
  if (failure == ELOOP) {
    return Error{ErrorCode::permission_denied, kWhere,
                 "'" + path + "' is a symbolic link, and nothing secret is written behind one"};
  }
  // What is no file is named as for a file that is read.
  if (failure == EISDIR || failure == ENXIO) TENDON_CHECK(CredentialFile::open(path));
  if (failure != 0) return system_error(kWhere, "open('" + path + "')", failure);
  TENDON_TRY(file, CredentialFile::open(path));
  TENDON_CHECK(file.check_access(FileReaders::owner_only, kNewFile));
  log(LogLevel::warn, kWhere,
      "'" + path + "' gets the secrets of secure links: anyone who has it reads all they carry");
  return std::shared_ptr<const KeyLog>(new KeyLog(std::move(fd)));
}

void KeyLog::add(std::string_view line) const noexcept {
  char end = '\n';
  const std::array<iovec, 2> pieces{{{const_cast<char*>(line.data()), line.size()}, {&end, 1}}};
  // One call, so that lines of several threads and processes do not mix.
  (void)!writev(fd_.get(), pieces.data(), pieces.size());
}

}  // namespace tendon::v0::detail::secure
