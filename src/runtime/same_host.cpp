// SPDX-License-Identifier: Apache-2.0
#include "runtime/same_host.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "session/features.hpp"
#include "transport/shm/shm_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.same_host";

// Asks the kernel for the kind of a descriptor ("anon_inode:[eventfd]"). A peer can pass any
// descriptor, and waiting for a death on one that is no process must not look valid.
bool is_anonymous(int fd, std::string_view kind) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return true;  // no /proc here, so nothing to compare with
  const std::string_view text(target.data(), static_cast<std::size_t>(size));
  // Newer kernels keep pidfds in a separate file system and name them "pidfd:[N]".
  return text.find(kind) != std::string_view::npos;
}

}  // namespace

Result<SameHostProof> SameHostProof::make() {
  TENDON_TRY(nonce, random_nonce());
  TENDON_TRY(segment, make_control_segment(nonce));
  OwnedFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process) return system_error(kWhere, "pidfd_open of this process", errno);
  return SameHostProof(std::move(segment), nonce, std::move(process));
}

HandshakeStep SameHostProof::send_attach(HandshakeStream& stream, RendezvousSocket& socket,
                                         int doorbell_fd, std::string connection) {
  HelloMessage attach;
  attach.kind = HelloKind::attach;
  attach.nonce = nonce_;
  attach.connection = std::move(connection);
  socket.pass({mine_->fd(), doorbell_fd, process_.get()});
  return stream.reply(attach);
}

Result<void> SameHostProof::receive_attach(RendezvousSocket& socket, const HelloMessage& attach) {
  TENDON_TRY(fds, socket.take_received());
  TENDON_TRY(theirs, attach_control_segment(std::move(fds[0]), attach.nonce));
  if (!is_anonymous(fds[1].get(), "eventfd") || !is_anonymous(fds[2].get(), "pidfd")) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "the peer passed descriptors that are not an eventfd and a pidfd"};
  }
  theirs_ = std::move(theirs);
  peer_doorbell_ = std::move(fds[1]);
  peer_process_ = std::move(fds[2]);
  return {};
}

Result<std::shared_ptr<Link>> SameHostProof::make_link(OwnedFd socket,
                                                       const HelloMessage& peer_hello,
                                                       const Proofs& proofs, ContextCore& context,
                                                       LinkRenewalOptions renewal) {
  mine_->release_fd();
  return make_shm_link(ShmLinkOptions{
      .path = {PathKind::shm, "same host, proved by a shared mapping"},
      .peer = with_proofs(identity_of(peer_hello), proofs),
      .cap_bytes = context.options().link_cap_bytes,
      .peer_cap_bytes = peer_hello.limits->link_cap_bytes,
      .socket = std::move(socket),
      .mine = std::move(mine_),
      .theirs = std::move(theirs_),
      .peer_doorbell = std::move(peer_doorbell_),
      .peer_process = std::move(peer_process_),
      .expect_signs_of_life = peer_hello.progress != ProgressMode::manual,
      .publish_pool = Features(peer_hello.features)
                              .both(Features::of_minor(context.options().protocol_minor))
                              .has(Feature::publish_pool)
                          ? context.publishing().pool()
                          : nullptr,
      .renewal = std::move(renewal),
  });
}

std::string mark_of(const secure::TlsSession& session) {
  constexpr std::size_t kMarkBytes = 16;
  return " session " + to_hex(Bytes(session.host_key.bytes()).first(kMarkBytes));
}

}  // namespace tendon::v0::detail
