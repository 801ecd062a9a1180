// SPDX-License-Identifier: Apache-2.0
// The bytes that a tcp peer may write: the control lane and two bulk lanes, in any order and any
// pieces.
//
// The input is a list of writes, so that short inputs reach far into long frames:
//   {lane, u16 count, count bytes}            lane 0: control, 1 and 2: bulk
//   {lane | 0x80, u32 count, one byte}        that byte, count times (at most 4 MiB)
//   {lane | 0x40, u16 count}                  the write before once more, count times
//
// The program takes what arrived on a pipe when the peer ends the pipe, so that the input decides
// how much lies here.
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/session/limits.hpp>
#include <vector>

#include "require.hpp"
#include "transport/device_offers.hpp"
#include "transport/stream/bulk_parser.hpp"
#include "transport/stream/control_parser.hpp"
#include "transport/stream/inbound.hpp"

using namespace tendon;
using namespace tendon::detail;

namespace {

constexpr std::uint64_t kCapBytes = 32ull << 20;  // more than a schema may have
constexpr std::size_t kRunBytes = 4u << 20;
constexpr std::uint64_t kAnnouncedBytes = 1ull << 30;  // this side seems to have sent so much

using tendon::test::require;

class Host final : public InboundHost, public MessageSink {
 public:
  void deliver(Incoming incoming) override {
    const Descriptor& descriptor = incoming.descriptor;
    require(!has_body(descriptor.kind) || descriptor.body_bytes() <= kCapBytes);
    require(descriptor.kind != MessageKind::schema || descriptor.payload_bytes <= kMaxSchemaBytes);
    if (receiver_of(descriptor.pipe) == nullptr) return;
    if (descriptor.kind == MessageKind::end) kept_.erase(descriptor.pipe);
    // Every transfer that is handed over ends exactly once.
    if (incoming.transfer != nullptr) require(open_.insert(incoming.transfer.get()).second);
    if (has_body(descriptor.kind)) kept_[descriptor.pipe].push_back(std::move(incoming));
  }
  MessageSink* receiver_of(std::uint32_t pipe) override {
    return pipe % 4 == 3 || pipe == detached_ ? nullptr : this;
  }
  Result<IncomingBody> allocate(std::uint64_t size_bytes) override {
    require(size_bytes <= kCapBytes);
    auto storage = Storage::allocate(size_bytes);
    if (!storage) return std::move(storage).error();
    IncomingBody body;
    body.place = IncomingBody::Place::pool_slot;
    body.data = storage->data();
    body.owner = storage->owner();
    return body;
  }
  void answer(const Descriptor& descriptor) override {
    if (descriptor.kind == MessageKind::ack) return;
    require(descriptor.kind == MessageKind::credit && descriptor.pipe == 0);
    require(descriptor.payload_bytes > credited_bytes_);
    credited_bytes_ = descriptor.payload_bytes;
  }
  // Acts as the link does with the bytes it has sent.
  Result<void> on_link_credit(std::uint64_t taken_bytes) override {
    if (taken_bytes <= kAnnouncedBytes) return {};
    return Error{ErrorCode::protocol_violation, "fuzz", "more than was announced"};
  }
  void on_room() override {}
  // Acts as the link does with offers of GPUs.
  Result<void> on_word(const Descriptor& word, Bytes body) override {
    require(word.pipe == 0 || word.kind == MessageKind::goodbye);
    require(body.size() == (word.kind == MessageKind::secure ? word.payload_bytes : 0));
    if (word.kind != MessageKind::device) return {};
    const auto wrong = offers_.take_in(word, Features::of_minor(kProtocolMinor));
    if (!wrong.empty()) return Error{ErrorCode::protocol_violation, "fuzz", std::string(wrong)};
    require(word.schema < kMaxDevicesPerLink && offers_.of_peer(word.schema) != nullptr);
    require(offers_.of_peer(word.schema + 1) == nullptr);
    return {};
  }
  void on_open(const Descriptor& descriptor, Bytes ticket) override {
    require(ticket.size() == descriptor.header_bytes);
    detached_ = descriptor.pipe;  // detaches a pipe at a time that the input chooses
  }
  void on_message(Incoming&&) override {}
  bool admits(const Descriptor&) override { return true; }
  bool claim_destination(const Descriptor& descriptor, std::vector<MutableBytes>& pieces) override {
    if (descriptor.pipe % 4 != 2) return false;
    claimed_.push_back(std::make_unique<std::byte[]>(descriptor.payload_bytes));
    MutableBytes rest(claimed_.back().get(), descriptor.payload_bytes);
    for (std::size_t size = 1; size < rest.size() && pieces.size() < 200; size = size * 3 / 2 + 1) {
      pieces.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
    pieces.push_back(rest);
    return true;
  }
  void on_transfer_ended(const Transfer& transfer) override {
    require(transfer.complete != transfer.aborted);
    require(transfer.aborted || transfer.received_bytes == transfer.descriptor.body_bytes());
    require(open_.erase(&transfer) == 1);
  }
  void on_link_failed(const Error&) override {}

  [[nodiscard]] std::uint64_t credited_bytes() const { return credited_bytes_; }
  void take_everything() { kept_.clear(); }

 private:
  std::set<const Transfer*> open_;
  std::map<std::uint32_t, std::vector<Incoming>> kept_;
  std::uint64_t credited_bytes_ = 0;
  DeviceOffers offers_;
  std::vector<std::unique_ptr<std::byte[]>> claimed_;
  std::uint32_t detached_ = 3;
};

struct Conversation {
  Host host;
  Inbound inbound{host, kCapBytes};
  ControlParser control{kCapBytes};
  std::array<BulkParser, 2> bulk{BulkParser(inbound), BulkParser(inbound)};

  ~Conversation() { host.take_everything(); }

  // Checks what a peer makes this process hold.
  void check_memory() const {
    require(inbound.small().most_bytes() <= inbound.small().limit_bytes());
    require(inbound.large().most_bytes() <= inbound.large().limit_bytes());
    require(host.credited_bytes() <= inbound.large().returned_bytes());
    require(inbound.open_count() <= kMaxOpenTransfers);
  }

  // Acts as the link does: false if the link is over, or the lane is not read at the moment.
  bool take_messages() {
    while (inbound.may_take()) {
      const auto message = control.next();
      if (!message) return false;
      if (!*message) return true;
      if (!inbound.on_message(**message)) return false;
      for (BulkParser& lane : bulk)
        if (!lane.resume()) return false;
    }
    return true;
  }
  bool write_control(Bytes bytes) {
    while (!bytes.empty() && inbound.may_take()) {
      const MutableBytes room = control.room();
      require(!room.empty());
      const std::size_t size = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), size);
      control.on_received(size);
      bytes = bytes.subspan(size);
      if (!take_messages()) return false;
    }
    return true;
  }
  bool write_bulk(BulkParser& lane, Bytes bytes) {
    while (!bytes.empty() && !lane.parked()) {
      const ReadTargets targets = lane.targets();
      require(targets.count != 0);
      std::size_t written = 0;
      for (std::size_t i = 0; i < targets.count && !bytes.empty(); ++i) {
        const std::size_t size = std::min(targets.pieces[i].iov_len, bytes.size());
        std::memcpy(targets.pieces[i].iov_base, bytes.data(), size);
        bytes = bytes.subspan(size);
        written += size;
      }
      require(written != 0);
      if (!lane.on_received(written)) return false;
      if (!take_messages()) return false;  // a transfer that ended may have made room
    }
    return true;
  }
  bool write(std::uint8_t lane, Bytes bytes) {
    return lane % 3 == 0 ? write_control(bytes) : write_bulk(bulk[lane % 3 - 1], bytes);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Conversation conversation;
  Bytes input(reinterpret_cast<const std::byte*>(data), size_bytes);
  std::vector<std::byte> run;
  Bytes bytes;  // kept for a repetition
  std::uint64_t written = 0;
  bool goes_on = true;
  while (goes_on && input.size() >= 3 && written < (16u << 20)) {
    const auto lane = static_cast<std::uint8_t>(input[0]);
    std::uint32_t times = 1;
    std::uint16_t count = 0;
    std::memcpy(&count, input.data() + 1, sizeof count);
    if ((lane & 0x80) != 0) {
      if (input.size() < 6) break;
      std::uint32_t run_bytes = 0;
      std::memcpy(&run_bytes, input.data() + 1, sizeof run_bytes);
      run.assign(std::min<std::size_t>(run_bytes, kRunBytes), input[5]);
      bytes = run;
      input = input.subspan(6);
    } else if ((lane & 0x40) != 0) {
      times = count;
      input = input.subspan(3);
    } else {
      bytes = input.subspan(3, std::min<std::size_t>(count, input.size() - 3));
      input = input.subspan(3 + bytes.size());
    }
    for (; goes_on && times != 0 && written < (16u << 20); --times) {
      written += bytes.size() + 1;
      goes_on = conversation.write(lane & 0x3f, bytes);
      conversation.check_memory();
    }
  }
  conversation.inbound.abort_all();
  require(conversation.inbound.open_count() == 0);
  return 0;
}
