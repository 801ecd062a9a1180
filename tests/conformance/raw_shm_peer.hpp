// SPDX-License-Identifier: Apache-2.0
// One shm link whose peer writes arbitrary bytes into the memory that both map.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstring>
#include <utility>
#include <vector>

#include "link_pair.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/shm_link.hpp"

namespace tendon::test {

class RawShmPeer {
 public:
  static constexpr std::uint64_t kCapBytes = 64ull << 20;

  /// `process`: the process whose death frees the link's slots; by default this one.
  /// `pool`: the link's pool, for a peer that takes holds.
  explicit RawShmPeer(pid_t process = getpid(), std::shared_ptr<PublishPool> pool = nullptr)
      : process_(process) {
    SocketPair sockets = make_sockets(AF_UNIX);
    socket_ = std::move(sockets.a);
    mine_ = make_control_segment(Nonce128{}).value();
    theirs_ = make_control_segment(Nonce128{}).value();
    ShmLinkOptions options = this->options(std::move(sockets.b));
    options.peer_doorbell = OwnedFd(dup(doorbell_.get()));
    options.publish_pool = std::move(pool);
    end.link = make_shm_link(std::move(options)).value();
    const auto started = end.link->start(reactor, end.observer);
    EXPECT_TRUE(succeeds(started));
  }

  /// Returns all options that a link to this peer needs, except the doorbell.
  ShmLinkOptions options(OwnedFd socket) {
    ShmLinkOptions options;
    options.path = {PathKind::shm, "a test asked for it"};
    options.peer = test_peer("mallory");
    options.cap_bytes = options.peer_cap_bytes = kCapBytes;
    options.socket = std::move(socket);
    options.mine = theirs_;
    options.theirs = mine_;
    options.peer_process = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, process_, 0)));
    return options;
  }

  /// The control block that the peer made: its descriptors, its returns, its sleep word.
  [[nodiscard]] ControlBlock& mine() { return *reinterpret_cast<ControlBlock*>(mine_->data()); }
  /// The control block that the link made; an honest peer writes its two `head` counters only.
  [[nodiscard]] ControlBlock& theirs() { return *reinterpret_cast<ControlBlock*>(theirs_->data()); }
  [[nodiscard]] int doorbell() const { return doorbell_.get(); }

  void publish(const Descriptor& descriptor) {
    ControlBlock& block = mine();
    block.message_entries[published_++ % ControlBlock::kMessageCount] = descriptor;
    block.messages.tail.store(published_, std::memory_order_release);
  }
  void give_back(const ReturnEntry& entry) {
    ControlBlock& block = mine();
    block.return_entries[returned_++ % ControlBlock::kReturnCount] = entry;
    block.returns.tail.store(returned_, std::memory_order_release);
  }
  /// Writes `bytes` to the link's socket with `fds` beside them.
  void tell(Bytes bytes, const std::vector<int>& fds) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 16)> control{};
    iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
    }
    EXPECT_EQ(sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT),
              static_cast<ssize_t>(bytes.size()))
        << strerror(errno);
  }
  void announce(const Descriptor& descriptor, const std::vector<int>& fds) {
    tell(std::as_bytes(std::span(&descriptor, 1)), fds);
  }
  /// Returns the next word that the link has written to its socket, and the descriptor beside it;
  /// nothing if there is none.
  [[nodiscard]] std::optional<std::pair<Descriptor, OwnedFd>> hear() {
    Descriptor word;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec io{&word, sizeof word};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
        static_cast<ssize_t>(sizeof word))
      return std::nullopt;
    int fd = -1;
    if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr)
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return std::pair(word, OwnedFd(fd));
  }
  /// Returns the next message that the link has written to its ring; nothing if there is none.
  [[nodiscard]] std::optional<Descriptor> next_message() {
    ControlBlock& block = theirs();
    if (block.messages.tail.load(std::memory_order_acquire) == read_) return std::nullopt;
    return block.message_entries[read_++ % ControlBlock::kMessageCount];
  }
  /// Returns the next slot that the link has returned; nothing if there is none.
  [[nodiscard]] std::optional<ReturnEntry> next_return() {
    ControlBlock& block = theirs();
    if (block.returns.tail.load(std::memory_order_acquire) == read_returns_) return std::nullopt;
    return block.return_entries[read_returns_++ % ControlBlock::kReturnCount];
  }
  /// Makes memory for an announcement, kept as long as the peer.
  int segment_fd(std::uint64_t size_bytes) {
    segments_.push_back(Segment::create(size_bytes).value());
    return segments_.back()->fd();
  }

  void hang_up() { socket_.reset(); }

  void settle() {
    while (reactor.turn() || end.poll()) {
    }
  }
  [[nodiscard]] const std::optional<Error>& error() const { return end.observer.error; }

  TestReactor reactor;

 private:
  const pid_t process_;
  std::shared_ptr<Segment> mine_;
  std::shared_ptr<Segment> theirs_;
  OwnedFd doorbell_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  OwnedFd socket_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::uint64_t published_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t read_returns_ = 0;

 public:
  LinkEnd end;  // last: its destructor unregisters its descriptors at the reactor
};

/// The announcement of a segment, which its owner makes before it sends slots of it.
inline Descriptor announcement(std::uint32_t id, std::uint64_t slot_bytes,
                               std::uint32_t slot_count) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.segment_or_inline_bytes = id;
  descriptor.slot = slot_count;
  descriptor.payload_bytes = slot_bytes;
  return descriptor;
}
/// A message on pipe 1 in the first slot of the first segment.
inline Descriptor slot_message(std::uint64_t sequence, std::uint64_t payload_bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = 1;
  descriptor.sequence = sequence;
  descriptor.payload_bytes = payload_bytes;
  descriptor.generation = 1;
  return descriptor;
}

}  // namespace tendon::test
