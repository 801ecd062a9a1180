// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/inbound.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>

#include "memory/recycler.hpp"
#include "transport/private_body.hpp"
#include "transport/stream/link_window.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kScrapBytes = 64 * 1024;

Error violation(std::string_view where, std::string detail) {
  return Error{ErrorCode::protocol_violation, where, std::move(detail)};
}

}  // namespace

Inbound::Inbound(InboundHost& host, std::uint64_t cap_bytes)
    : host_(host),
      cap_bytes_(cap_bytes),
      small_(private_limit_bytes(cap_bytes), [this] { host_.on_room(); }),
      large_(link_window_bytes(cap_bytes), [this] { tell_taken(); }) {}

void Inbound::tell_taken() {
  const std::uint64_t taken_bytes = large_.returned_bytes();
  if (taken_bytes - told_bytes_ < link_credit_bytes(cap_bytes_)) return;
  told_bytes_ = taken_bytes;
  Descriptor credit;
  credit.kind = MessageKind::credit;
  credit.payload_bytes = taken_bytes;
  host_.answer(credit);
}

Result<void> Inbound::on_message(const ControlParser::Message& message) {
  const Descriptor& descriptor = message.descriptor;
  if (goodbye_) return violation("tcp.goodbye", describe(descriptor) + " after its goodbye");
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::error: {
      if (!descriptor.is_inline()) return open(descriptor);
      Incoming incoming;
      incoming.descriptor = descriptor;
      if (host_.receiver_of(descriptor.pipe) != nullptr) {
        incoming.body = make_private_body(message.inline_body.size());
        if (!message.inline_body.empty()) {
          std::memcpy(incoming.body.data, message.inline_body.data(), message.inline_body.size());
        }
        incoming.held = HeldBytes::Share(small_, private_cost_bytes(message.inline_body.size()));
      }
      host_.deliver(std::move(incoming));
      return {};
    }
    case MessageKind::credit:
      if (descriptor.pipe == 0) return host_.on_link_credit(descriptor.payload_bytes);
      [[fallthrough]];
    case MessageKind::ack:
    case MessageKind::end:
    case MessageKind::head:
    case MessageKind::cancel: {
      Incoming incoming;
      incoming.descriptor = descriptor;
      host_.deliver(std::move(incoming));
      return {};
    }
    case MessageKind::abort:
      return abort(descriptor);
    case MessageKind::ping:
      ping(descriptor);
      return {};
    case MessageKind::open:
      host_.on_open(descriptor, message.inline_body);
      return {};
    case MessageKind::goodbye:
      goodbye_ = true;
      return host_.on_word(descriptor, {});
    case MessageKind::retire:
    case MessageKind::clock:
    case MessageKind::device:
    case MessageKind::secure:
      return host_.on_word(descriptor, message.inline_body);
    case MessageKind::segment:
      break;
  }
  return violation("tcp.descriptor", describe(descriptor) + " has no meaning on this path");
}

Result<void> Inbound::open(const Descriptor& descriptor) {
  if (find(descriptor.pipe, descriptor.sequence) != nullptr) {
    return violation("tcp.descriptor",
                     describe(descriptor) + " was announced before and is not complete");
  }
  const std::uint64_t body_bytes = descriptor.body_bytes();
  // Released at the end of this call, unless a transfer keeps it.
  auto held = large_.ask(body_bytes);
  if (!held) {
    return violation("tcp.descriptor",
                     describe(descriptor) + ": " + std::to_string(body_bytes) + " bytes while " +
                         std::to_string(large_.bytes()) + " of all pipes are not taken, beyond " +
                         "the window of " + std::to_string(large_.limit_bytes()) + " bytes");
  }
  std::unique_ptr<OpenTransfer> fresh;
  if (unused_.empty()) {
    fresh = std::make_unique<OpenTransfer>();
  } else {
    fresh = std::move(unused_.back());
    unused_.pop_back();
  }
  fresh->descriptor = descriptor;
  fresh->claimed = false;
  fresh->frames_begun.assign((FrameCut{body_bytes}.count() + 63) / 64, 0);
  fresh->begun_bytes = fresh->received_bytes = 0;
  fresh->expected_bytes = body_bytes;
  fresh->aborted = false;
  OpenTransfer& opened = *fresh;
  open_.push_back(std::move(fresh));

  Incoming incoming;
  incoming.descriptor = descriptor;
  MessageSink* const sink = host_.receiver_of(descriptor.pipe);
  if (sink != nullptr && !sink->admits(descriptor)) return {};
  if (sink != nullptr) {
    opened.transfer = make_recycled<Transfer>();
    opened.transfer->descriptor = descriptor;
    opened.transfer->held = *std::move(held);
    choose_memory(opened, *sink);
    incoming.transfer = opened.transfer;
  }
  host_.deliver(std::move(incoming));
  return {};
}

void Inbound::choose_memory(OpenTransfer& open, MessageSink& sink) {
  IncomingBody& body = open.transfer->body;
  if (claim(open, sink)) {
    // The user's tensors have no place for values and header.
    body = make_private_body(open.descriptor.body_bytes() - open.descriptor.payload_bytes);
    body.place = IncomingBody::Place::claimed;
    open.claimed = true;
  } else if (auto allocated = host_.allocate(open.descriptor.body_bytes())) {
    body = *std::move(allocated);
  } else {
    // The receiver loses one message and hears of it; the frames are read and dropped.
    body = IncomingBody::of_failure(
        Error{ErrorCode::resource_exhausted, "tcp.receive",
              "a message of " + std::to_string(open.descriptor.body_bytes()) +
                  " bytes is lost, as there is no memory for it here: " + allocated.error().detail,
              allocated.error().system_errno});
  }
}

bool Inbound::claim(OpenTransfer& open, MessageSink& sink) {
  const std::uint64_t rest_bytes = open.descriptor.body_bytes() - open.descriptor.payload_bytes;
  if (rest_bytes > kMaxInlineBytes) return false;
  std::vector<MutableBytes>& pieces = open.transfer->claimed;
  pieces.swap(open.claimed_memory);
  pieces.clear();
  open.claimed_ends.clear();
  std::uint64_t end = 0;
  if (sink.claim_destination(open.descriptor, pieces)) {
    for (const MutableBytes piece : pieces) open.claimed_ends.push_back(end += piece.size());
    if (end == open.descriptor.payload_bytes) return true;
  }
  pieces.clear();
  return false;
}

Result<OpenTransfer*> Inbound::begin_frame(const FrameHeader& header) {
  if (std::string problem = check_frame(header); !problem.empty()) {
    return violation("tcp.frame", describe(header) + ": " + problem);
  }
  OpenTransfer* open = find(header.pipe, header.sequence);
  if (open == nullptr) return open;
  const FrameCut cut{open->descriptor.body_bytes()};
  const std::uint32_t legal = cut.length_at(header.offset);
  if (legal == 0) {
    return violation("tcp.frame", describe(header) + ": no frame of a body of " +
                                      std::to_string(cut.body_bytes) + " bytes begins there");
  }
  if (legal != header.length_bytes) {
    return violation("tcp.frame", describe(header) + ": its length is " +
                                      std::to_string(header.length_bytes) + " bytes, it must be " +
                                      std::to_string(legal));
  }
  const std::uint64_t index = cut.index_of(header.offset);
  std::uint64_t& word = open->frames_begun[index / 64];
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  if ((word & bit) != 0) {
    return violation("tcp.frame", describe(header) + ": these bytes came before");
  }
  if (header.length_bytes > open->expected_bytes - open->begun_bytes) {
    return violation("tcp.frame", describe(header) + ": its message was aborted after " +
                                      std::to_string(open->expected_bytes) + " bytes");
  }
  word |= bit;
  open->begun_bytes += header.length_bytes;
  return open;
}

std::uint64_t Inbound::place(OpenTransfer& open, std::uint64_t offset, std::uint64_t size_bytes,
                             ReadTargets& targets) {
  std::uint64_t placed = 0;
  if (open.transfer == nullptr || open.aborted || open.transfer->body.failure() != nullptr) {
    if (scrap_ == nullptr) scrap_ = std::make_unique_for_overwrite<std::byte[]>(kScrapBytes);
    while (placed < size_bytes && !targets.full()) {
      const std::uint64_t piece = std::min<std::uint64_t>(kScrapBytes, size_bytes - placed);
      targets.add(scrap_.get(), piece);
      placed += piece;
    }
    return placed;
  }
  Transfer& transfer = *open.transfer;
  if (!open.claimed) {
    if (targets.full()) return 0;
    targets.add(transfer.body.data + offset, size_bytes);
    return size_bytes;
  }
  const std::uint64_t payload_bytes = open.descriptor.payload_bytes;
  auto piece = static_cast<std::size_t>(
      std::upper_bound(open.claimed_ends.begin(), open.claimed_ends.end(), offset) -
      open.claimed_ends.begin());
  for (; placed < size_bytes && !targets.full(); ++piece) {
    const std::uint64_t at = offset + placed;
    if (at >= payload_bytes) {
      targets.add(transfer.body.data + (at - payload_bytes), size_bytes - placed);
      return size_bytes;
    }
    const MutableBytes memory = transfer.claimed[piece];
    const std::uint64_t skipped = at - (open.claimed_ends[piece] - memory.size());
    const std::uint64_t taken = std::min(memory.size() - skipped, size_bytes - placed);
    if (taken != 0) targets.add(memory.data() + skipped, taken);
    placed += taken;
  }
  return placed;
}

void Inbound::on_received(OpenTransfer& open, std::uint64_t size_bytes) {
  open.received_bytes += size_bytes;
  if (open.transfer != nullptr && !open.aborted)
    open.transfer->received_bytes = open.received_bytes;
  if (open.received_bytes == open.expected_bytes) end(open);
}

Result<void> Inbound::abort(const Descriptor& descriptor) {
  OpenTransfer* open = find(descriptor.pipe, descriptor.sequence);
  if (open == nullptr || open->aborted) {
    return violation("tcp.abort",
                     describe(descriptor) + ": no message of that number is incomplete");
  }
  // Frames and this word travel on different connections: frames begun before it still arrive.
  const std::uint64_t sent_bytes = descriptor.payload_bytes;
  if (sent_bytes < open->begun_bytes || sent_bytes >= open->expected_bytes) {
    return violation("tcp.abort", describe(descriptor) + ": it says that " +
                                      std::to_string(sent_bytes) + " bytes were sent, not in " +
                                      std::to_string(open->begun_bytes) + ".." +
                                      std::to_string(open->expected_bytes - 1));
  }
  open->expected_bytes = sent_bytes;
  open->aborted = true;
  tell_ended(*open);
  if (open->received_bytes == sent_bytes) end(*open);
  return {};
}

void Inbound::ping(const Descriptor& descriptor) {
  if (descriptor.pipe == 0) return;  // a sign of life: its arrival says everything
  if (arrived(descriptor.pipe, descriptor.sequence)) {
    acknowledge(descriptor.pipe, descriptor.sequence);
    return;
  }
  // Keeps one word for each pipe, the latest, so that a peer cannot pile them up.
  for (PendingAck& pending : pending_acks_) {
    if (pending.pipe != descriptor.pipe) continue;
    pending.sequence = std::max(pending.sequence, descriptor.sequence);
    return;
  }
  pending_acks_.push_back({descriptor.pipe, descriptor.sequence});
}

void Inbound::acknowledge(std::uint32_t pipe, std::uint64_t sequence) {
  Descriptor ack;
  ack.kind = MessageKind::ack;
  ack.pipe = pipe;
  ack.sequence = sequence;
  host_.answer(ack);
}

bool Inbound::arrived(std::uint32_t pipe, std::uint64_t sequence) const {
  return std::none_of(open_.begin(), open_.end(), [&](const auto& open) {
    return open->descriptor.pipe == pipe && open->descriptor.sequence <= sequence;
  });
}

OpenTransfer* Inbound::find(std::uint32_t pipe, std::uint64_t sequence) noexcept {
  for (const auto& open : open_) {
    if (open->descriptor.pipe == pipe && open->descriptor.sequence == sequence) return open.get();
  }
  return nullptr;
}

// Ends a transfer once every byte that was sent of it has arrived.
void Inbound::end(OpenTransfer& open) {
  if (!open.aborted) {
    if (open.transfer != nullptr) open.transfer->complete = true;
    tell_ended(open);
  }
  const std::uint32_t pipe = open.descriptor.pipe;
  close(open);
  std::erase_if(pending_acks_, [&](const PendingAck& pending) {
    if (pending.pipe != pipe || !arrived(pending.pipe, pending.sequence)) return false;
    acknowledge(pending.pipe, pending.sequence);
    return true;
  });
}

// Drops the transfer: its memory belongs to its other holders.
void Inbound::tell_ended(OpenTransfer& open) {
  const std::shared_ptr<Transfer> transfer = std::move(open.transfer);
  open.transfer = nullptr;
  if (transfer == nullptr) return;
  if (open.aborted) transfer->aborted = true;
  if (MessageSink* sink = host_.receiver_of(open.descriptor.pipe))
    sink->on_transfer_ended(*transfer);
  transfer->claimed.swap(open.claimed_memory);
  if (!transfer->aborted) return;
  // Frees the memory now, and not only when the program looks.
  transfer->body = {};
  transfer->held.give_back();
}

void Inbound::close(OpenTransfer& open) {
  const auto at = std::find_if(open_.begin(), open_.end(),
                               [&](const auto& candidate) { return candidate.get() == &open; });
  unused_.push_back(std::move(*at));
  open_.erase(at);
}

void Inbound::drop_claims(std::uint32_t pipe) noexcept {
  for (const auto& open : open_) {
    if (open->descriptor.pipe != pipe || !open->claimed || open->transfer == nullptr) continue;
    open->transfer->aborted = true;
    open->transfer->held.give_back();
    open->transfer = nullptr;  // its bytes are read and dropped
  }
}

void Inbound::abort_all() {
  small_.end();
  large_.end();
  while (!open_.empty()) {
    OpenTransfer& open = *open_.back();
    open.aborted = true;
    tell_ended(open);
    close(open);
  }
  pending_acks_.clear();
}

}  // namespace tendon::v0::detail
