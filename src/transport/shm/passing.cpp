// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/passing.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/text.hpp"

namespace tendon::v0::detail {

Result<bool> pass_descriptor(int socket, Descriptor word, int fd, const std::string& peer_name) {
  iovec io{&word, sizeof word};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS)) return false;
  if (sent != static_cast<ssize_t>(sizeof word)) {
    return Error{ErrorCode::peer_lost, "shm.announce",
                 "peer " + peer_name + " is gone: " + errno_text(errno), errno};
  }
  return true;
}

Descriptor segment_word(const SegmentInfo& info) {
  Descriptor word;
  word.kind = MessageKind::segment;
  word.segment_or_inline_bytes = info.id;
  word.slot = info.slot_count;
  word.payload_bytes = info.slot_bytes;
  return word;
}

}  // namespace tendon::v0::detail
