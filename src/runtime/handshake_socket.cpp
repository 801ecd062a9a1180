// SPDX-License-Identifier: Apache-2.0
#include "runtime/handshake_socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kPreludeBytes = 16;  // magic, versions, length of the rest: hello.hpp
constexpr std::size_t kMostFds = 3;        // beside `attach`; no other frame has any

// How many bytes the frame in `frame` still needs before the machine can say more.
std::size_t bytes_wanted(const std::vector<std::byte>& frame) {
  if (frame.size() < kPreludeBytes) return kPreludeBytes - frame.size();
  std::uint32_t rest = 0;
  std::memcpy(&rest, frame.data() + 12, sizeof rest);
  // A length above the cap is refused by the machine; read no more than it may be.
  const std::size_t total =
      kPreludeBytes + std::min<std::size_t>(rest, kMaxHelloBytes - kPreludeBytes);
  return total - frame.size();
}

}  // namespace

HandshakeStep HandshakeSocket::advance() {
  for (;;) {
    const std::size_t wanted = bytes_wanted(frame_);
    if (wanted == 0) {
      Bytes input(frame_);
      HandshakeStep step = handshake_.on_bytes(input);
      frame_.clear();
      if (step.next == Next::failed) flush(step);
      if (step.next != Next::read) return step;
      continue;
    }
    std::array<std::byte, kMaxHelloBytes> buffer;
    iovec io{buffer.data(), wanted};
    // Room for one too many, so that it is seen.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kMostFds + 1))> control{};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return {};
    if (got <= 0) return handshake_.on_end();
    has_heard_ = true;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        received_fds_.emplace_back(fd);
      }
    }
    if (received_fds_.size() > kMostFds) {
      received_fds_.clear();
      HandshakeStep step;
      step.next = Next::failed;
      step.error = Error{ErrorCode::protocol_violation, "context.handshake",
                         "the peer passed more than " + std::to_string(kMostFds) + " descriptors"};
      return step;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      HandshakeStep step;
      step.next = Next::failed;
      step.error =
          Error{ErrorCode::too_many_open_files, "context.handshake",
                "this process has no free descriptor for what the peer passed (RLIMIT_NOFILE)"};
      return step;
    }
    frame_.insert(frame_.end(), buffer.begin(), buffer.begin() + got);
    if (frame_.size() == kPreludeBytes && bytes_wanted(frame_) != 0) {
      // The magic and versions are checked before the rest is waited for: a stranger is told at
      // once.
      HelloReader glance;
      Bytes input(frame_);
      if (!glance.on_bytes(input)) {
        Bytes again(frame_);
        HandshakeStep step = handshake_.on_bytes(again);
        flush(step);
        return step;
      }
    }
  }
}

HandshakeStep HandshakeSocket::reply(const HelloMessage& message, std::span<const int> fds) {
  HandshakeStep step = handshake_.reply(message);
  if (step.next == Next::failed) return step;
  if (auto sent = send(step.send, fds); !sent) {
    step.next = Next::failed;
    step.error = std::move(sent).error();
  }
  return step;
}

HandshakeStep HandshakeSocket::reject(Error error) {
  HandshakeStep step = handshake_.reject(std::move(error));
  flush(step);
  return step;
}

Result<void> HandshakeSocket::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty()) return {};
  iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostFds)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  return system_error("context.handshake", "sending a frame of the handshake",
                      sent < 0 ? errno : EAGAIN);
}

Result<std::uint32_t> peer_user(int unix_socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return system_error("context.handshake", "getsockopt(SO_PEERCRED)", errno);
  return static_cast<std::uint32_t>(credentials.uid);
}

}  // namespace tendon::v0::detail
