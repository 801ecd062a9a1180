// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_devices.hpp"

#include <cstring>
#include <new>
#include <string>
#include <tendon/observe/log.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/failpoint.hpp"
#include "cuda/device_pool.hpp"
#include "cuda/gpus.hpp"
#include "cuda/slot_sizes.hpp"
#include "memory/claim.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kAnnounce = "shm.device";
constexpr std::uint64_t kSlotUnitBytes = 4096;

Error violation(std::string detail) {
  return Error{ErrorCode::protocol_violation, kAnnounce, std::move(detail)};
}

/// Called in the device thread.
Result<void> map_segment(PeerDeviceSegment& segment, const OwnedFd& descriptor) {
  (void)TENDON_FAILPOINT("shm.device.before_import");
  TENDON_TRY(memory,
             cuda::DeviceSegment::import(segment.gpu->context(), segment.gpu->thread(), descriptor,
                                         segment.slot_bytes * segment.slot_count));
  segment.memory = std::move(memory);
  return {};
}

}  // namespace

class PeerDevices::Body final : public DeviceBody {
 public:
  Body(std::shared_ptr<ShmMemory> link, std::shared_ptr<Segment> words,
       std::shared_ptr<const PeerDeviceSegment> segment, const DevicePart& part)
      : link_(std::move(link)),
        words_(std::move(words)),
        segment_(std::move(segment)),
        part_(part),
        state_(part.word == 0 ? State::arrived : State::under_way) {
    link_->add_hold();
  }
  ~Body() override { link_->give_back({part_.segment, part_.slot, part_.generation}, 0); }

  [[nodiscard]] bool arrived() noexcept override {
    look();
    return state_ == State::arrived && is_tried();
  }
  [[nodiscard]] bool is_incomplete() const noexcept override { return state_ == State::incomplete; }
  [[nodiscard]] const DevicePart& part() const noexcept override { return part_; }
  [[nodiscard]] const Error* failure() const noexcept override {
    return segment_->error ? &*segment_->error : nullptr;
  }
  [[nodiscard]] const std::shared_ptr<cuda::Gpu>& gpu() const noexcept override {
    return segment_->gpu;
  }
  [[nodiscard]] std::uint64_t address() const noexcept override {
    return segment_->memory->address() + part_.slot * segment_->slot_bytes;
  }

  /// True if its segment was mapped, or refused.
  [[nodiscard]] bool is_tried() const noexcept {
    return segment_->state.load(std::memory_order_acquire) >= PeerDeviceSegment::State::mapped;
  }
  [[nodiscard]] bool is_under_way() noexcept {
    look();
    return state_ == State::under_way;
  }
  /// Notes that the word means nothing from here on.
  void give_up() noexcept {
    if (is_under_way()) state_ = State::incomplete;
  }
  /// Drops it: nobody will report the attempt.
  void drop() noexcept { state_ = State::incomplete; }

 private:
  void look() noexcept {
    if (state_ != State::under_way) return;
    const auto* const words = reinterpret_cast<const ReadyWords*>(words_->data());
    if (words->has(part_.word)) state_ = State::arrived;
  }
  enum class State : std::uint8_t { under_way, arrived, incomplete };
  const std::shared_ptr<ShmMemory> link_;
  const std::shared_ptr<Segment> words_;
  const std::shared_ptr<const PeerDeviceSegment> segment_;
  const DevicePart part_;
  State state_;
};

PeerDevices::PeerDevices(std::string peer_name, std::shared_ptr<ShmMemory> memory)
    : peer_name_(std::move(peer_name)),
      memory_(std::move(memory)),
      untried_(std::make_shared<std::atomic<std::uint32_t>>(0)) {}

Result<void> PeerDevices::is_legal(const Descriptor& word) const {
  const std::uint32_t number = word.segment_or_inline_bytes;
  std::uint64_t bytes = 0;
  const bool is_a_segment =
      number >= cuda::DevicePool::kFirstSegment && word.schema < kMaxDevicesPerLink &&
      word.slot != 0 && word.payload_bytes != 0 && word.payload_bytes % kSlotUnitBytes == 0 &&
      !__builtin_mul_overflow(word.payload_bytes, std::uint64_t{word.slot}, &bytes) &&
      bytes % cuda::kLargeSlotBytes == 0;
  if (!is_a_segment) return violation("a malformed announcement of a segment on a GPU");
  if (segments_.contains(number)) {
    return violation("segment " + std::to_string(number) + " on a GPU was announced twice");
  }
  const auto gpu = gpus_.find(word.schema);
  if (gpu != gpus_.end() && gpu->second.uuid != uuid_of(word))
    return violation("GPU " + std::to_string(word.schema) + " is " + uuid_text(gpu->second.uuid) +
                     ", and now " + uuid_text(uuid_of(word)));
  if (untried_->load() >= kMostUntried) {
    return violation("more than " + std::to_string(kMostUntried) +
                     " segments on GPUs that were not tried yet");
  }
  if (segments_.size() >= kMostSegments || bytes > kMostBytes - announced_bytes_) {
    return violation("more than " + std::to_string(kMostSegments) + " segments on GPUs, or " +
                     std::to_string(kMostBytes) + " bytes");
  }
  return {};
}

Result<void> PeerDevices::announce(const Descriptor& word, OwnedFd descriptor, Features features) {
  if (!features.has(Feature::devices) ||
      word.tag != static_cast<std::uint32_t>(DeviceWord::segment))
    return violation("an unknown word about a GPU");
  TENDON_CHECK(is_legal(word));
  auto segment = std::make_shared<PeerDeviceSegment>();
  segment->number = word.segment_or_inline_bytes;
  segment->device = word.schema;
  segment->gpu_uuid = uuid_of(word);
  segment->slot_bytes = word.payload_bytes;
  segment->slot_count = word.slot;
  segment->descriptor = std::move(descriptor);
  gpus_.try_emplace(segment->device, PeerGpu{segment->gpu_uuid, std::nullopt});
  segments_.emplace(segment->number, segment);
  announced_bytes_ += segment->slot_bytes * segment->slot_count;
  untried_->fetch_add(1);
  if (try_map(segment)) return {};
  answer(segment->device, DeviceAnswer::unused);
  return {};
}

// False: this process has not used the GPU.
bool PeerDevices::try_map(const std::shared_ptr<PeerDeviceSegment>& segment) {
  using State = PeerDeviceSegment::State;
  segment->gpu = cuda::find_used_gpu(segment->gpu_uuid);
  if (segment->gpu == nullptr) return false;
  segment->state.store(State::under_way);
  // A job must be copyable.
  auto descriptor = std::make_shared<OwnedFd>(std::move(segment->descriptor));
  const auto refuse = [](PeerDeviceSegment& it, Error error) {
    it.error = std::move(error);
    it.state.store(State::refused, std::memory_order_release);
  };
  const auto posted =
      segment->gpu->thread().post([segment, descriptor, refuse, told = told_, untried = untried_] {
        auto mapped = map_segment(*segment, *descriptor);
        descriptor->reset();
        untried->fetch_sub(1);
        if (mapped)
          segment->state.store(State::mapped, std::memory_order_release);
        else
          refuse(*segment, std::move(mapped).error());
        told();
      });
  if (posted) return true;
  untried_->fetch_sub(1);
  refuse(*segment, posted.error());
  mapped_.store(true);
  return true;
}

void PeerDevices::tick() {
  if (!answers_.empty()) mapped_.store(true);  // the socket had no room
  for (const auto& [number, segment] : segments_) {
    const auto state = segment->state.load(std::memory_order_acquire);
    if (state == PeerDeviceSegment::State::kept) (void)try_map(segment);
    if (state != PeerDeviceSegment::State::mapped) continue;
    if (segment->gpu->context()->loss() != cuda::Status::success)
      answer(segment->device, DeviceAnswer::unmappable);
  }
}

Result<void> PeerDevices::collect() {
  if (!mapped_.load()) return {};
  using State = PeerDeviceSegment::State;
  for (const auto& [number, segment] : segments_) {
    const State state = segment->state.load(std::memory_order_acquire);
    if (segment->is_seen || state < State::mapped) continue;
    segment->is_seen = true;
    if (state == State::mapped) {
      const bool has_words = words_ != nullptr || make_words();
      answer(segment->device, has_words ? DeviceAnswer::direct : DeviceAnswer::unmappable);
      continue;
    }
    const Error& why = *segment->error;
    if (why.code == ErrorCode::protocol_violation) return why;
    // Messages in it that are on their way are lost.
    log(LogLevel::info, kAnnounce,
        "memory on a GPU of " + peer_name_ + " cannot be mapped here: " + why.detail);
    answer(segment->device, DeviceAnswer::unmappable);
  }
  return {};
}

void PeerDevices::answer(std::uint32_t device, DeviceAnswer answer) {
  auto& last = gpus_[device].answer;
  if (last == answer || last == DeviceAnswer::unmappable) return;
  last = answer;
  Descriptor word = device_word(DeviceWord::answer, device);
  word.sequence = ++answer_count_;
  word.slot = static_cast<std::uint32_t>(answer);
  answers_.push_back(word);
  mapped_.store(true);  // a turn of the link sends it
}

bool PeerDevices::make_words() {
  auto made = Segment::create(sizeof(ReadyWords));
  if (!made || !claim(**made, 0, (*made)->size_bytes())) return false;
  words_ = *std::move(made);
  ready_.store(std::launder(reinterpret_cast<const ReadyWords*>(words_->data())),
               std::memory_order_release);
  return true;
}

std::string_view PeerDevices::take_in(const Descriptor& word) {
  switch (static_cast<DeviceWord>(word.tag)) {
    case DeviceWord::gone: {
      const auto segment = segments_.find(word.segment_or_inline_bytes);
      if (segment == segments_.end()) return "an unknown segment on a GPU went";
      announced_bytes_ -= segment->second->slot_bytes * segment->second->slot_count;
      if (segment->second->state.load() == PeerDeviceSegment::State::kept) untried_->fetch_sub(1);
      segments_.erase(segment);
      return {};
    }
    case DeviceWord::incomplete: {
      // It says nothing of a message that was dropped unread, or has arrived.
      for (const UnderWay& each : under_way_) {
        if (each.number != word.sequence) continue;
        if (const auto body = each.body.lock()) body->give_up();
        mapped_.store(true);
      }
      return {};
    }
    default:
      return "an unknown word about a GPU";
  }
}

Result<std::shared_ptr<DeviceBody>> PeerDevices::body_of(const Descriptor& descriptor,
                                                         const IncomingBody& body,
                                                         Features features) {
  if (descriptor.device_parts == 0 || body.failure() != nullptr)
    return std::shared_ptr<DeviceBody>();
  DevicePart part;
  std::memcpy(&part, body.data + descriptor.body_bytes() - sizeof part, sizeof part);
  std::atomic_signal_fence(
      std::memory_order_seq_cst);  // copied once, although it may lie in a slot
  TENDON_TRY(made, body_of(part, features));
  if (part.word == 0 && !made->is_tried()) untried_bodies_.push_back({descriptor.pipe, made});
  return std::shared_ptr<DeviceBody>(std::move(made));
}

Result<void> PeerDevices::is_legal(const DevicePart& part, Features features) const {
  const auto wrong = [&](const std::string& what) { return violation("a device part " + what); };
  const auto segment = segments_.find(part.segment);
  if (segment == segments_.end())
    return wrong("in segment " + std::to_string(part.segment) + ", which was not announced");
  const PeerDeviceSegment& there = *segment->second;
  // It may have said so before this GPU was lost.
  if (words_ == nullptr) return wrong("before this side has said that it reads one");
  if (part.device != there.device || part.zero != 0)
    return wrong("of GPU " + std::to_string(part.device) + " in a segment of GPU " +
                 std::to_string(there.device));
  // An answer about another segment of this GPU lets the peer send in one that is kept.
  if (there.state.load(std::memory_order_acquire) == PeerDeviceSegment::State::kept &&
      cuda::find_used_gpu(there.gpu_uuid) == nullptr)
    return wrong("in segment " + std::to_string(part.segment) + ", of a GPU that is not used here");
  if (part.slot >= there.slot_count || part.size_bytes > there.slot_bytes) {
    return wrong("in slot " + std::to_string(part.slot) + " of " +
                 std::to_string(there.slot_count) + ", of " + std::to_string(part.size_bytes) +
                 " bytes of " + std::to_string(there.slot_bytes));
  }
  const bool is_there = part.word == 0 && features.has(Feature::device_samples);
  if (!is_there && part.word <= last_number_) return wrong("whose number does not rise");
  return {};
}

Result<std::shared_ptr<PeerDevices::Body>> PeerDevices::body_of(const DevicePart& part,
                                                                Features features) {
  TENDON_CHECK(is_legal(part, features));
  const auto& segment = segments_.find(part.segment)->second;
  if (segment->state.load(std::memory_order_acquire) == PeerDeviceSegment::State::kept)
    (void)try_map(segment);
  if (part.word == 0) return std::make_shared<Body>(memory_, words_, segment, part);
  (void)note_arrivals();
  if (!under_way_.empty() && part.word - under_way_.front().number >= ReadyWords::kCount)
    return violation("a device part whose word is that of a message which has not arrived");
  last_number_ = part.word;
  auto body = std::make_shared<Body>(memory_, words_, segment, part);
  under_way_.push_back({part.word, body});
  awaited_.store(under_way_.front().number, std::memory_order_relaxed);
  return body;
}

std::vector<std::uint32_t> PeerDevices::take_tried() {
  std::vector<std::uint32_t> pipes;
  std::erase_if(untried_bodies_, [&](const Untried& each) {
    const auto body = each.second.lock();
    if (body != nullptr && !body->is_tried()) return false;
    if (body != nullptr) pipes.push_back(each.first);
    return true;
  });
  return pipes;
}

bool PeerDevices::has_input() const noexcept {
  if (mapped_.load(std::memory_order_relaxed)) return true;
  const ReadyWords* const words = ready();
  if (words == nullptr) return false;
  const std::uint64_t awaited = awaited_.load(std::memory_order_relaxed);
  if (awaited == 0) return false;
  return words->has(awaited) ||
         words->told.load(std::memory_order_acquire) != seen_told_.load(std::memory_order_relaxed);
}

bool PeerDevices::note_arrivals() noexcept {
  bool moved = false;
  const ReadyWords* const words = ready();
  if (words == nullptr) return moved;
  const std::uint64_t told = words->told.load(std::memory_order_acquire);
  if (told != seen_told_.load(std::memory_order_relaxed)) {
    seen_told_.store(told, std::memory_order_relaxed);
    moved = true;
  }
  while (!under_way_.empty()) {
    const auto body = under_way_.front().body.lock();
    if (body != nullptr && body->is_under_way()) break;
    under_way_.pop_front();
    moved = true;
  }
  awaited_.store(under_way_.empty() ? 0 : under_way_.front().number, std::memory_order_relaxed);
  return moved;
}

void PeerDevices::end() noexcept {
  for (const UnderWay& each : std::exchange(under_way_, {}))
    if (const auto body = each.body.lock()) body->give_up();
  awaited_.store(0, std::memory_order_relaxed);
  for (const Untried& each : std::exchange(untried_bodies_, {}))
    if (const auto body = each.second.lock(); body != nullptr && !body->is_tried()) body->drop();
  answers_.clear();
}

}  // namespace tendon::v0::detail
