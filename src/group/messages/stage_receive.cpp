// SPDX-License-Identifier: Apache-2.0
#include "group/messages/stage_receive.hpp"

#include <algorithm>
#include <utility>

#include "group/messages/point_to_point.hpp"
#include "tensor/copy.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.recv_from_stage";
// While one is received, the next has its place.
constexpr std::size_t kChunksAhead = 2;

}  // namespace

StageReceive::StageReceive(std::shared_ptr<GroupCore> stages,
                           std::shared_ptr<GroupCore> tensor_group, Tensor tensor, GroupRank peer)
    : Awaited(*stages->context()),
      stages_(std::move(stages)),
      tensor_group_(std::move(tensor_group)),
      stages_epoch_(stages_->epoch()),
      own_epoch_(tensor_group_->epoch()),
      tensor_(std::move(tensor)),
      peer_(peer),
      packed_(tensor_) {}

Result<void> StageReceive::run(Deadline deadline) {
  const auto first = [&]() -> Result<bool> {
    const Lock lock(mutex_);
    number_ = own_epoch_->stage_receives.fetch_add(1);
    TENDON_CHECK(recv(*stages_, words_, counterpart(kStageTag), deadline));
    TENDON_CHECK(take_header());
    if (header_.whole != 0 && packed_.size_bytes() != 0)
      TENDON_CHECK(recv(*stages_, packed_, counterpart(stage_tag(header_.number)), deadline));
    if (!whole_is_enough()) {
      TENDON_CHECK(begin_exchange());
      return false;
    }
    if (!tensor_.is_contiguous()) copy_strided(tensor_, packed_);
    return true;
  };
  auto complete = first();
  if (!complete) {
    tensor_group_->abort("recv_from_stage: " + complete.error().detail);
    return std::move(complete).error();
  }
  if (*complete) return {};
  go_on();
  return wait_for_stage(Completion<void>(self()), deadline);
}

void StageReceive::start() {
  {
    const Lock lock(mutex_);
    number_ = own_epoch_->stage_receives.fetch_add(1);
    first_.emplace(recv_async(stages_, words_, counterpart(kStageTag)));
  }
  go_on();
}

void StageReceive::go_on() {
  if (progress()) stages_->context()->add_work(self());
}

void StageReceive::drive(Deadline deadline) {
  const MessageWaits::Here here(stages_->waits(), "recv_from_stage", peer_);
  (void)stages_->context()->wait(nullptr, deadline, [this] { return !progress(); });
}

void StageReceive::cancel() {
  const Lock lock(mutex_);
  stop(Error{ErrorCode::cancelled, "completion.cancel", "the receive was cancelled"});
}

void StageReceive::expire() {
  const Lock lock(mutex_);
  stop(Error{ErrorCode::timeout, kWhere, missing()});
}

bool StageReceive::progress() {
  if (!mutex_.try_lock()) return !finished();
  const Lock lock(mutex_, kAdoptLock);
  while (step()) {
  }
  return phase_ != Phase::over;
}

bool StageReceive::has_input() const noexcept {
  // The thread that has it may have looked before something arrived.
  if (!mutex_.try_lock()) return true;
  const Lock lock(mutex_, kAdoptLock);
  return (first_ && first_->done()) || (!sends_.empty() && sends_.front().done()) ||
         std::ranges::any_of(lanes_, [](const Lane& lane) {
           return !lane.posted.empty() && lane.posted.front().done();
         });
}

bool StageReceive::step() {
  if (phase_ == Phase::over) return false;
  if (auto usable = stages_->context()->usable(kWhere); !usable) {
    end(std::move(usable));
    return false;
  }
  if (phase_ == Phase::ending) {
    std::erase_if(sends_, [](const Completion<void>& send) { return send.done(); });
    if (sends_.empty()) end(*std::exchange(failure_, std::nullopt));
    return false;
  }
  if (stages_->epoch() != stages_epoch_ || tensor_group_->epoch() != own_epoch_) {
    stop(Error{ErrorCode::group_aborted, kWhere,
               "its groups went on to another epoch before the tensor was whole"});
    return true;
  }
  // Another member has failed, and this one cannot pass chunks on any more.
  if (tensor_group_->has_ended()) {
    if (auto why = tensor_group_->failure("recv_from_stage")) {
      stop(*std::move(why));
      return true;
    }
  }
  auto moved = advance();
  if (!moved) {
    stop(std::move(moved).error());
    return true;
  }
  return *moved;
}

Result<bool> StageReceive::advance() {
  if (phase_ != Phase::exchange) {
    if (!first_->done()) return false;
    TENDON_CHECK(first_->wait(Deadline::now()));
    first_.reset();
    if (phase_ == Phase::header) {
      TENDON_CHECK(take_header());
      if (header_.whole != 0 && packed_.size_bytes() != 0) {
        phase_ = Phase::whole;
        first_.emplace(recv_async(stages_, packed_, counterpart(stage_tag(header_.number))));
        return true;
      }
    }
    TENDON_CHECK(begin_exchange());
    return true;
  }
  bool moved = false;
  for (Lane& lane : lanes_) {
    TENDON_TRY(here, advance(lane));
    moved = moved || here;
  }
  TENDON_TRY(sent, advance_sends());
  const bool all_here =
      std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.posted.empty(); });
  if (!all_here || !sends_.empty()) return moved || sent;
  if (!tensor_.is_contiguous()) copy_strided(tensor_, packed_);
  end({});
  return false;
}

Result<void> StageReceive::take_header() {
  header_ = StageHeader::unpacked(words_);
  const StageHeader mine = StageHeader::of(tensor_);
  if (header_.tensor != mine.tensor) {
    return Error{ErrorCode::mismatch, kWhere,
                 stage_peer_text(*stages_, peer_) + " sends " + header_.tensor_text() +
                     ", this member expects " + mine.tensor_text()};
  }
  if (!tensor_.is_contiguous()) {
    TENDON_TRY(fresh, Tensor::empty(tensor_.dtype(), tensor_.shape()));
    packed_ = std::move(fresh);
  }
  return {};
}

// False if the counterparts of others may have sent them their shares alone.
bool StageReceive::whole_is_enough() const {
  return header_.whole != 0 && on_one_host(*own_epoch_);
}

Result<void> StageReceive::begin_exchange() {
  phase_ = Phase::exchange;
  if (whole_is_enough()) return {};
  const std::uint32_t members = own_epoch_->size();
  const std::uint32_t self = own_epoch_->self.value;
  for (std::uint32_t member = 0; member < members; ++member) {
    if (member == self && header_.whole != 0) continue;
    lanes_.push_back({.member = member});
    TENDON_CHECK(post(lanes_.back()));
  }
  if (header_.whole == 0) return {};
  const std::uint64_t chunks = stage_chunk_count(members, packed_.size_bytes());
  for (std::uint64_t k = 0; k < chunks; ++k) TENDON_CHECK(pass_on(k));
  return {};
}

Result<bool> StageReceive::advance(Lane& lane) {
  bool moved = false;
  while (!lane.posted.empty() && lane.posted.front().done()) {
    moved = true;
    TENDON_CHECK(lane.posted.front().wait(Deadline::now()));
    lane.posted.pop_front();
    const std::uint64_t chunk = lane.taken_count++;
    TENDON_CHECK(post(lane));
    if (lane.member == own_epoch_->self.value) TENDON_CHECK(pass_on(chunk));
  }
  return moved;
}

Result<void> StageReceive::post(Lane& lane) {
  const std::uint32_t members = own_epoch_->size();
  const bool mine = lane.member == own_epoch_->self.value;
  const std::uint64_t chunks = stage_chunk_count(members, packed_.size_bytes());
  while (lane.posted.size() < kChunksAhead && lane.posted_count < chunks) {
    TENDON_TRY(chunk, stage_chunk(packed_, lane.member, members, lane.posted_count));
    if (chunk.size_bytes() == 0) return {};
    ++lane.posted_count;
    lane.posted.push_back(
        mine ? recv_async(stages_, chunk, counterpart(stage_tag(header_.number)))
             : recv_async(tensor_group_, chunk, From{GroupRank{lane.member}, gather_tag(number_)}));
  }
  return {};
}

Result<void> StageReceive::pass_on(std::uint64_t chunk) {
  const std::uint32_t self = own_epoch_->self.value;
  TENDON_TRY(bytes, stage_chunk(packed_, self, own_epoch_->size(), chunk));
  if (bytes.size_bytes() == 0) return {};
  for (const GroupRank member : own_epoch_->ranks()) {
    if (member.value == self) continue;
    sends_.push_back(send_async(tensor_group_, bytes, To{member, gather_tag(number_)}));
  }
  return {};
}

Result<bool> StageReceive::advance_sends() {
  bool moved = false;
  while (!sends_.empty() && sends_.front().done()) {
    moved = true;
    TENDON_CHECK(sends_.front().wait(Deadline::now()));
    sends_.pop_front();
  }
  return moved;
}

std::string StageReceive::missing() const {
  const std::string peer = stage_peer_text(*stages_, peer_);
  if (first_) return "nothing of the tensor has come from " + peer;
  for (const Lane& lane : lanes_) {
    if (lane.posted.empty()) continue;
    const std::uint64_t chunks = stage_chunk_count(own_epoch_->size(), packed_.size_bytes());
    return "chunk " + std::to_string(lane.taken_count) + " of " + std::to_string(chunks) +
           " has not come from " +
           (lane.member == own_epoch_->self.value
                ? peer
                : own_epoch_->names[GroupRank{lane.member}] + ", which passes its share on");
  }
  return "the others of this stage have not taken what this member passes on";
}

void StageReceive::stop(Error error) {
  if (phase_ == Phase::ending || phase_ == Phase::over) return;
  phase_ = Phase::ending;
  // The others of this stage would wait for chunks that are not passed on.
  tensor_group_->abort("recv_from_stage: " + error.detail);
  failure_ = std::move(error);
  first_.reset();
  lanes_.clear();
  for (Completion<void>& send : sends_) send.cancel();
  (void)step();
  stages_->context()->wake_for_work();
}

void StageReceive::end(Result<void> result) {
  phase_ = Phase::over;
  first_.reset();
  lanes_.clear();
  conclude(std::move(result));
}

}  // namespace tendon::v0::detail
