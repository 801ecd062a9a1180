// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/devices_out.hpp"

#include <new>
#include <utility>
#include <vector>

#include "core/failpoint.hpp"
#include "transport/shm/device_fill.hpp"

namespace tendon::v0::detail {
namespace {

Error wrong_answer(std::string_view what) {
  return Error{ErrorCode::protocol_violation, "shm.device",
               "an answer about a GPU " + std::string(what)};
}

std::string_view reason_of(DeviceAnswer answer) {
  switch (answer) {
    case DeviceAnswer::unused:
      return "the peer's process has not used this GPU with CUDA";
    default:
      return "the driver of the peer cannot map memory of this GPU";
  }
}

}  // namespace

DevicesOut::DevicesOut(Link& link, Peer peer, std::shared_ptr<SlotPool> pool,
                       const std::shared_ptr<ShmMemory>& memory, Pass pass)
    : link_(link),
      peer_(peer),
      pool_(std::move(pool)),
      pass_(std::move(pass)),
      answers_(std::make_shared<Answers>()),
      holds_(link.peer_name()),
      copies_(std::make_shared<DeviceCopies>(memory)) {}

// Answers

Result<void> DevicesOut::take_answer(const Descriptor& word, OwnedFd descriptor) {
  if (word.schema >= link_.device_offers.own().size()) return wrong_answer("that was not offered");
  if (word.sequence == 0) return wrong_answer("has no number");
  if (word.slot > static_cast<std::uint32_t>(DeviceAnswer::unmappable))
    return wrong_answer("says what nobody knows");
  const auto said = static_cast<DeviceAnswer>(word.slot);
  if ((said == DeviceAnswer::direct) != static_cast<bool>(descriptor))
    return wrong_answer("came without its ready words, or with what has none");
  const Lock lock(answers_->mutex);
  Answer& answer = answers_->by_device[word.schema];
  if (word.sequence <= answer.number) return {};
  // The words of one link stay as they were passed first.
  if (said == DeviceAnswer::direct && answer.memory == nullptr) {
    auto memory = Segment::attach(std::move(descriptor), sizeof(ReadyWords));
    if (!memory && memory.error().code == ErrorCode::protocol_violation)
      return std::move(memory).error();
    if (memory) {
      answer.memory = *std::move(memory);
      answer.memory->release_fd();
      answer.refused.clear();
    } else {
      answer.refused = "its ready words cannot be mapped here: " + memory.error().detail;
    }
  }
  answer.number = word.sequence;
  answer.said = said;
  answer.is_late = false;
  if (said != DeviceAnswer::unused) answer.question = nullptr;
  return {};
}

DevicesOut::Way DevicesOut::way(std::uint32_t device) const {
  const Lock lock(answers_->mutex);
  const auto answer = answers_->by_device.find(device);
  if (answer == answers_->by_device.end() || answer->second.number == 0) return Way::unknown;
  const bool is_direct =
      answer->second.said == DeviceAnswer::direct && answer->second.refused.empty();
  return is_direct ? Way::direct : Way::staged;
}

std::string DevicesOut::why_staged(std::uint32_t device) const {
  const Lock lock(answers_->mutex);
  const auto answer = answers_->by_device.find(device);
  if (answer == answers_->by_device.end() || answer->second.number == 0)
    return "the peer has not answered yet";
  if (answer->second.said != DeviceAnswer::direct)
    return std::string(reason_of(answer->second.said));
  return answer->second.refused;
}

Result<std::shared_ptr<const PeerWords>> DevicesOut::words(std::uint32_t device,
                                                           const std::shared_ptr<cuda::Gpu>& gpu,
                                                           Deadline deadline) {
  {
    const Lock lock(answers_->mutex);
    const Answer& answer = answers_->by_device[device];
    if (answer.words != nullptr) return answer.words;
  }
  const auto job = [answers = answers_, device, gpu] {
    return register_words(*answers, device, *gpu);
  };
  if (!deadline.is_poll()) return gpu->thread().run(job, deadline);
  TENDON_CHECK(gpu->thread().post([job] { (void)job(); }));
  return std::shared_ptr<const PeerWords>();
}

// Runs in the device thread, once for several pipes.
Result<std::shared_ptr<const PeerWords>> DevicesOut::register_words(Answers& answers,
                                                                    std::uint32_t device,
                                                                    cuda::Gpu& gpu) {
  std::shared_ptr<Segment> memory;
  {
    const Lock lock(answers.mutex);
    const Answer& answer = answers.by_device[device];
    if (answer.words != nullptr) return answer.words;
    memory = answer.memory;
  }
  auto registered = cuda::RegisteredMemory::create(gpu.context(), gpu.thread(), memory,
                                                   memory->data(), memory->size_bytes());
  const Lock lock(answers.mutex);
  Answer& answer = answers.by_device[device];
  if (!registered) {
    answer.refused = "its ready words cannot be registered here: " + registered.error().detail;
    return std::move(registered).error();
  }
  auto words = std::make_shared<PeerWords>();
  words->registered = *std::move(registered);
  words->memory = std::launder(reinterpret_cast<ReadyWords*>(memory->data()));
  answer.words = std::move(words);
  return answer.words;
}

void DevicesOut::ask_again(std::uint32_t device, cuda::DevicePool& pool, Deadline deadline) {
  {
    const Lock lock(answers_->mutex);
    const auto answer = answers_->by_device.find(device);
    const bool lacks_question = answer != answers_->by_device.end() && answer->second.number != 0 &&
                                answer->second.said == DeviceAnswer::unused &&
                                answer->second.question == nullptr;
    if (!lacks_question) return;
  }
  const auto slot = pool.acquire(1, deadline);
  if (!slot) return;
  const auto shared = share(device, **slot);
  if (!shared || *shared != Sent::done) return;
  const Lock lock(answers_->mutex);
  Answer& answer = answers_->by_device[device];
  if (answer.said == DeviceAnswer::unused) answer.question = (*slot)->segment();
}

void DevicesOut::note_late(std::uint32_t device) {
  const Lock lock(answers_->mutex);
  Answer& answer = answers_->by_device[device];
  answer.is_late = answer.number == 0;
}

bool DevicesOut::is_late(std::uint32_t device) const {
  const Lock lock(answers_->mutex);
  const auto answer = answers_->by_device.find(device);
  return answer != answers_->by_device.end() && answer->second.is_late;
}

// Slots

bool DevicesOut::is_announced(std::uint32_t segment) const {
  const Lock lock(mutex_);
  return announced_.contains(segment);
}

Result<Sent> DevicesOut::share(std::uint32_t device, const cuda::DeviceSlot& slot) {
  const std::uint32_t number = slot.id().segment;
  if (is_announced(number)) return Sent::done;
  say_gone();  // their memory exists while the peer has mapped it
  const auto ledger = pool_->ledger();
  if (link_.ended()) return link_.end_error();
  const Lock lock(mutex_);
  if (announced_.contains(number)) return Sent::done;
  if (announced_.size() >= PeerDevices::kMostSegments) {
    return Error{ErrorCode::resource_exhausted, "shm.device",
                 "peer " + link_.peer_name() + " has as many segments on GPUs as a link passes"};
  }
  const auto& segment = slot.segment();
  Descriptor word = device_word(DeviceWord::segment, device, segment->context().uuid());
  word.segment_or_inline_bytes = number;
  word.payload_bytes = slot.size_bytes();
  word.slot = static_cast<std::uint32_t>(segment->size_bytes() / slot.size_bytes());
  TENDON_TRY(passed, pass_(word, segment->descriptor().get()));
  if (!passed) return Sent::later;
  announced_.emplace(number, segment);
  (void)TENDON_FAILPOINT("shm.device.announced");
  return Sent::done;
}

void DevicesOut::say_gone() {
  std::vector<std::uint32_t> gone;
  {
    const Lock lock(mutex_);
    std::erase_if(announced_, [&](const auto& each) {
      if (!each.second.expired()) return false;
      gone.push_back(each.first);
      return true;
    });
  }
  for (const std::uint32_t segment : gone) {
    Descriptor word = device_word(DeviceWord::gone, 0);
    word.segment_or_inline_bytes = segment;
    link_.post(word);
  }
}

void DevicesOut::register_later(const LoanedSlot& slot) {
  const std::uint32_t number = slot.slot().id.segment;
  const Bytes bytes = slot.slot().memory;
  if (bytes.size() < cuda::RegisteredSlots::kLeastSlotBytes) return;
  {
    const Lock lock(mutex_);
    if (registered_.contains(number)) return;
  }
  pool_->keep_pages();  // before any is registered
  auto there = pool_->locate(bytes);
  if (!there) return;
  const Lock lock(mutex_);
  if (registered_.contains(number)) return;
  registered_.emplace(number, cuda::RegisteredSlots::add(
                                  std::move(there->segment), bytes.size(), Access::read_write,
                                  std::make_shared<cuda::KeptPages>(cuda::KeptPages::State::kept)));
}

std::string_view DevicesOut::keep_pages(Features features) {
  if (!features.has(Feature::devices)) return "a word about a GPU without the feature `devices`";
  {
    const Lock lock(mutex_);
    if (std::exchange(keeps_pages_, true)) return "it asked twice whether pages stay";
  }
  pool_->keep_pages();
  link_.post(device_word(DeviceWord::pages_stay, 0));
  return {};
}

Result<std::unique_ptr<DeviceHold>> DevicesOut::hold(const cuda::DeviceSlot& slot) {
  auto ledger = pool_->ledger();
  // The end of the link ends its holds, and takes this lock once after it has said so.
  if (link_.ended()) return link_.end_error();
  return holds_.give(ledger, slot);
}

// Messages

bool DevicesOut::number(DeviceFill& fill) {
  const auto number = copies_->next();
  if (number) fill.number(*number);
  return number.has_value();
}

void DevicesOut::note_placed(const SendOp& op) {
  if (op.device != nullptr) op.device->note_placed(copies_, link_.weak_from_this());
  if (op.device_hold != nullptr) op.device_hold->note_shown();
}

}  // namespace tendon::v0::detail
