// SPDX-License-Identifier: Apache-2.0
#include "runtime/same_host.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "transport/shm/shm_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.same_host";

// What the kernel says a descriptor is ("anon_inode:[eventfd]"): a peer can pass anything, and
// waiting for a death on a descriptor that is no process must not look like one.
bool is_anonymous(int fd, std::string_view kind) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return true;  // no /proc here: nothing to compare with
  const std::string_view text(target.data(), static_cast<std::size_t>(size));
  // Newer kernels keep pidfds in a file system of their own and name them "pidfd:[N]".
  return text.find(kind) != std::string_view::npos;
}

}  // namespace

Result<SameHostProof> SameHostProof::make() {
  TENDON_TRY(nonce, random_token());
  TENDON_TRY(segment, make_control_segment(nonce));
  OwnedFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process) return system_error(kWhere, "pidfd_open of this process", errno);
  return SameHostProof(std::move(segment), nonce, std::move(process));
}

HandshakeStep SameHostProof::send_attach(HandshakeSocket& socket, int doorbell_fd,
                                         std::string connection) {
  HelloMessage attach;
  attach.kind = HelloKind::attach;
  attach.nonce = nonce_;
  attach.connection = std::move(connection);
  const std::array fds = {mine_->fd(), doorbell_fd, process_.get()};
  return socket.reply(attach, fds);
}

Result<void> SameHostProof::receive_attach(HandshakeSocket& socket, const HelloMessage& attach) {
  auto& fds = socket.received_fds();
  if (fds.size() != 3) {
    return Error{
        ErrorCode::protocol_violation, kWhere,
        "the peer passed " + std::to_string(fds.size()) +
            " descriptors instead of 3 (control block, doorbell, process); if it passed 3, this "
            "process has no free descriptor"};
  }
  TENDON_TRY(theirs, attach_control_segment(std::move(fds[0]), attach.nonce));
  if (!is_anonymous(fds[1].get(), "eventfd") || !is_anonymous(fds[2].get(), "pidfd")) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "the peer passed descriptors that are not an eventfd and a pidfd"};
  }
  theirs_ = std::move(theirs);
  peer_doorbell_ = std::move(fds[1]);
  peer_process_ = std::move(fds[2]);
  fds.clear();
  return {};
}

Result<std::shared_ptr<Link>> SameHostProof::make_link(OwnedFd socket,
                                                       const HelloMessage& peer_hello,
                                                       std::uint64_t cap_bytes, Path path) {
  mine_->release_fd();
  return make_shm_link(ShmLinkOptions{
      .path = std::move(path),
      .peer = identity_of(peer_hello),
      .cap_bytes = cap_bytes,
      .peer_cap_bytes = peer_hello.limits->link_cap_bytes,
      .socket = std::move(socket),
      .mine = std::move(mine_),
      .theirs = std::move(theirs_),
      .peer_doorbell = std::move(peer_doorbell_),
      .peer_process = std::move(peer_process_),
      .expect_signs_of_life = peer_hello.progress != ProgressMode::manual,
  });
}

}  // namespace tendon::v0::detail
