// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/stream/socket_stream.hpp"

namespace tendon::v0::detail {

RendezvousSocket::RendezvousSocket(OwnedFd socket)
    : socket_(std::move(socket)), peer_{.user = peer_user(fd())} {}

StreamIo RendezvousSocket::read(std::span<const iovec> pieces) noexcept {
  // Has room for one extra descriptor, so that a surplus is detected.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kDescriptors + 1))> control{};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? StreamIo() : StreamIo::lost(errno);
  if (got == 0) return StreamIo::ended();
  keep_descriptors(message);
  return StreamIo::moved(static_cast<std::size_t>(got));
}

void RendezvousSocket::keep_descriptors(const msghdr& message) {
  auto* const whole = const_cast<msghdr*>(&message);
  for (cmsghdr* header = CMSG_FIRSTHDR(whole); header != nullptr;
       header = CMSG_NXTHDR(whole, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      OwnedFd owned(descriptor);
      if (received_.size() <= kDescriptors) received_.push_back(std::move(owned));
    }
  }
  was_truncated_ |= (message.msg_flags & MSG_CTRUNC) != 0;
}

StreamIo RendezvousSocket::write(std::span<const iovec> pieces) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kDescriptors)> control{};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  if (passed_) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof *passed_);
    std::memcpy(CMSG_DATA(header), passed_->data(), sizeof *passed_);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno == EAGAIN ? StreamIo() : StreamIo::lost(errno);
  passed_.reset();
  return StreamIo::moved(static_cast<std::size_t>(sent));
}

void RendezvousSocket::end_output() noexcept { (void)shutdown(fd(), SHUT_WR); }

Result<std::array<OwnedFd, RendezvousSocket::kDescriptors>> RendezvousSocket::take_received() {
  std::vector<OwnedFd> received = std::exchange(received_, {});
  if (std::exchange(was_truncated_, false) && received.size() < kDescriptors) {
    return Error{ErrorCode::too_many_open_files, "context.handshake",
                 "this process has no free descriptor for what the peer passed (RLIMIT_NOFILE)"};
  }
  if (received.size() != kDescriptors) {
    return Error{ErrorCode::protocol_violation, "context.handshake",
                 "the peer passed " +
                     (received.size() > kDescriptors ? "more than " + std::to_string(kDescriptors)
                                                     : std::to_string(received.size())) +
                     " descriptors instead of " + std::to_string(kDescriptors) +
                     " (control block, doorbell, process)"};
  }
  std::array<OwnedFd, kDescriptors> taken;
  std::move(received.begin(), received.end(), taken.begin());
  return taken;
}

}  // namespace tendon::v0::detail
