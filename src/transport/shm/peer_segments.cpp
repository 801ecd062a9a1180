// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_segments.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/failpoint.hpp"
#include "memory/publish_pool.hpp"
#include "memory/recycler.hpp"

namespace tendon::v0::detail {
namespace {

Error violation(std::string_view where, std::string detail) {
  return Error{ErrorCode::protocol_violation, where, std::move(detail)};
}

struct Announcement {
  ssize_t got = 0;
  Descriptor descriptor;
  std::vector<OwnedFd> fds;
  bool truncated = false;
};

// Leaves it on the socket: otherwise the descriptor of a taken announcement, if it found no number
// here, would be lost for ever.
Announcement look_at(int socket) {
  Announcement announcement;
  iovec io{&announcement.descriptor, sizeof announcement.descriptor};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 4)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  announcement.got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (announcement.got <= 0) return announcement;
  announcement.truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      announcement.fds.emplace_back(fd);
    }
  }
  return announcement;
}

// Takes the announcement that look_at() saw; its descriptors were passed on then.
void take(int socket) {
  Descriptor descriptor;
  iovec io{&descriptor, sizeof descriptor};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  (void)recvmsg(socket, &message, MSG_DONTWAIT);
}

}  // namespace

PeerSegments::PeerSegments(std::string peer_name, std::uint64_t peer_cap_bytes,
                           std::shared_ptr<ShmMemory> memory,
                           std::function<MessageSink*(std::uint32_t)> sink_of,
                           std::function<Result<void>(const Descriptor&, OwnedFd)> on_device)
    : peer_name_(std::move(peer_name)),
      peer_cap_bytes_(peer_cap_bytes),
      memory_(std::move(memory)),
      sink_of_(std::move(sink_of)),
      on_device_(std::move(on_device)) {}

Result<void> PeerSegments::read(int socket) {
  lacks_descriptor_ = false;
  while (socket >= 0 && !turn_is_spent()) {
    Announcement announcement = look_at(socket);
    if (announcement.got <= 0) return {};  // nothing yet; the link learns of an end by itself
    // Without one: the kernel could not number it here. With some: the peer passed too many.
    if (announcement.truncated && announcement.fds.empty()) {
      lacks_descriptor_ = true;
      return {};
    }
    take(socket);
    ++taken_in_turn_;
    const Descriptor& descriptor = announcement.descriptor;
    const bool is_of_a_gpu = descriptor.kind == MessageKind::device;
    if (announcement.got != static_cast<ssize_t>(sizeof descriptor) ||
        announcement.fds.size() != 1 || (descriptor.kind != MessageKind::segment && !is_of_a_gpu)) {
      return violation("shm.announce", "a malformed announcement of a segment");
    }
    OwnedFd fd = std::move(announcement.fds.front());
    if (is_of_a_gpu) {
      TENDON_CHECK(on_device_(descriptor, std::move(fd)));
      continue;
    }
    TENDON_CHECK(descriptor.pipe != 0 ? add_published(descriptor, std::move(fd))
                                      : add(descriptor, std::move(fd)));
  }
  return {};
}

Result<void> PeerSegments::add(const Descriptor& descriptor, OwnedFd fd) {
  if (!is_legal(descriptor))
    return violation("shm.announce", "a malformed announcement of a segment");
  (void)TENDON_FAILPOINT("shm.announce.before_attach");
  const std::uint32_t id = descriptor.segment_or_inline_bytes;
  const bool is_shared = id >= PublishPool::kFirstSegment;
  Announced announced{std::make_shared<AttachedSegment>(AttachedSegment{
                          memory_, nullptr, nullptr, descriptor.payload_bytes, descriptor.slot,
                          is_shared ? Access::read_only : Access::read_write}),
                      std::move(fd)};
  if (!is_shared) announced_.emplace_back();
  Announced& kept = is_shared ? shared_[id] : announced_.back();
  kept = std::move(announced);
  const auto mapped = map(kept);
  // A lack of memory is reported with the first message that lies there.
  return mapped || mapped.error().code != ErrorCode::protocol_violation ? Result<void>() : mapped;
}

// A link's own segments are numbered in order; the owner of the publish pool, which is larger than
// what one link may hold, numbers its segments freely.
bool PeerSegments::is_legal(const Descriptor& descriptor) const {
  const std::uint32_t id = descriptor.segment_or_inline_bytes;
  const std::uint64_t slot_bytes = descriptor.payload_bytes;
  if (slot_bytes < SlotPool::kSmallestSlotBytes || !std::has_single_bit(slot_bytes) ||
      descriptor.slot == 0 || descriptor.slot > SlotPool::kMaxSlots)
    return false;
  if (id < PublishPool::kFirstSegment) {
    return id == announced_.size() && announced_.size() < SlotPool::kMaxSegments &&
           slot_bytes <= std::bit_ceil(peer_cap_bytes_);
  }
  return !shared_.contains(id) && shared_.size() < SlotPool::kMaxSegments &&
         slot_bytes <= SlotPool::kLargestCapBytes;
}

// Mapping a sparse file costs the peer nothing, and this process its address space.
Result<void> PeerSegments::has_room(std::uint64_t size_bytes) {
  const auto fits = [&] {
    const std::uint64_t mapped_bytes = mapped_bytes_ + published_bytes_;
    return size_bytes <= kMostMappedBytes - std::min(mapped_bytes, kMostMappedBytes);
  };
  if (fits()) return {};
  published_bytes_ = 0;
  forget_unmapped();
  for (const auto& [file, published] : files_)
    if (const auto segment = published.lock()) published_bytes_ += segment->size_bytes();
  if (fits()) return {};
  return Error{ErrorCode::resource_exhausted, "shm.announce",
               "a segment of " + std::to_string(size_bytes) + " bytes, while " +
                   std::to_string(mapped_bytes_ + published_bytes_) + " of at most " +
                   std::to_string(kMostMappedBytes) + " of this peer are mapped"};
}

Result<void> PeerSegments::map(Announced& announced) {
  AttachedSegment& segment = *announced.segment;
  if (segment.memory != nullptr) return {};
  const std::uint64_t size_bytes = segment.slot_bytes * segment.slot_count;
  TENDON_CHECK(has_room(size_bytes));
  auto memory = segment.access == Access::read_only
                    ? Segment::attach_published(std::move(announced.fd), size_bytes)
                    : Segment::attach(std::move(announced.fd), size_bytes);
  if (!memory) return std::move(memory).error();  // the descriptor stays for the next try
  segment.memory = *std::move(memory);
  segment.memory->release_fd();
  const bool is_sealed = segment.access == Access::read_only;
  segment.registered = cuda::RegisteredSlots::add(
      segment.memory, segment.slot_bytes, segment.access,
      is_sealed ? std::make_shared<cuda::KeptPages>(cuda::KeptPages::State::kept) : pages_);
  mapped_bytes_ += size_bytes;
  return {};
}

Result<void> PeerSegments::add_published(const Descriptor& descriptor, OwnedFd fd) {
  MessageSink* const sink = sink_of_(descriptor.pipe);
  if (sink == nullptr) return {};  // it has just ended
  if (published_.size() >= kMaxPublished) forget_unmapped();
  if (published_.size() >= kMaxPublished)
    return violation("shm.publish", "more than " + std::to_string(kMaxPublished) + " segments");
  auto memory = map_published(std::move(fd), descriptor.payload_bytes);
  if (!memory) {
    if (memory.error().code == ErrorCode::protocol_violation) return std::move(memory).error();
    sink->on_segment_failed(descriptor.segment_or_inline_bytes, memory.error());
    return {};
  }
  // Its own counted share: one file may have any number of names. The mapping must not wait for
  // published_.
  Segment* const address = memory->get();
  std::shared_ptr<Segment> share(
      address, [whole = *std::move(memory)](Segment*) mutable noexcept { whole.reset(); });
  published_.push_back(share);
  return sink->on_segment(descriptor.segment_or_inline_bytes, std::move(share));
}

Result<std::shared_ptr<Segment>> PeerSegments::map_published(OwnedFd fd, std::uint64_t size_bytes) {
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return system_error("shm.publish", "fstat", errno);
  const File file(status.st_dev, status.st_ino);
  const auto known = files_.find(file);
  // A mapping that differs from the announcement is refused below, as for any peer.
  if (auto memory = known == files_.end() ? nullptr : known->second.lock();
      memory != nullptr && memory->size_bytes() == size_bytes)
    return memory;
  TENDON_CHECK(has_room(size_bytes));
  TENDON_TRY(memory, Segment::attach_published(std::move(fd), size_bytes));
  memory->release_fd();
  files_.insert_or_assign(file, memory);
  published_bytes_ += size_bytes;
  return memory;
}

void PeerSegments::forget_unmapped() {
  std::erase_if(published_, [](const auto& share) { return share.expired(); });
  std::erase_if(files_, [](const auto& known) { return known.second.expired(); });
}

Result<IncomingBody> PeerSegments::body_of(const Descriptor& descriptor) {
  const std::uint64_t size = descriptor.body_bytes();
  const std::uint32_t id = descriptor.segment_or_inline_bytes;
  if (!knows(id))
    return violation("shm.receive", "segment " + std::to_string(id) + " was not announced");
  Announced& announced = id < announced_.size() ? announced_[id] : shared_.at(id);
  const std::shared_ptr<AttachedSegment>& segment = announced.segment;
  if (descriptor.slot >= segment->slot_count || descriptor.offset != 0 ||
      size > segment->slot_bytes) {
    return violation("shm.receive", "slot " + std::to_string(descriptor.slot) + " of " +
                                        std::to_string(segment->slot_count) + ", " +
                                        std::to_string(size) + " bytes of " +
                                        std::to_string(segment->slot_bytes));
  }
  // Returns the slot when it is dropped, whether or not it could be read.
  auto slot =
      make_recycled<ReceivedSlot>(segment, SlotId{id, descriptor.slot, descriptor.generation});
  if (const auto mapped = map(announced); !mapped) {
    if (mapped.error().code == ErrorCode::protocol_violation) return mapped.error();
    return IncomingBody::of_failure(
        Error{ErrorCode::resource_exhausted, "shm.receive",
              "a message of " + std::to_string(size) + " bytes from " + peer_name_ +
                  " is lost: the segment of " +
                  std::to_string(segment->slot_bytes * segment->slot_count) +
                  " bytes that it lies in cannot be mapped here (" + mapped.error().detail +
                  "); raise RLIMIT_AS, or give the sender a smaller ContextOptions::link_cap_bytes",
              mapped.error().system_errno});
  }
  IncomingBody body;
  body.place = IncomingBody::Place::peer_slot;
  body.data = segment->memory->data() + descriptor.slot * segment->slot_bytes;
  body.slot_bytes = segment->slot_bytes;
  body.access = segment->access;
  body.owner = std::move(slot);
  return body;
}

}  // namespace tendon::v0::detail
