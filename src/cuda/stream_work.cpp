// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream_work.hpp"

#include <algorithm>
#include <string>

#include "cuda/awaited_answer.hpp"
#include "cuda/behind_stream.hpp"
#include "cuda/gather_kernel.hpp"
#include "cuda/registered_slots.hpp"

namespace tendon::v0::detail::cuda {
namespace {

/// Checks that the stream belongs to the context. A stream that always exists belongs to the
/// current one.
Result<void> check_owner(PrimaryContext& context, StreamHandle stream, std::string_view where) {
  ContextHandle owner = nullptr;
  const Status status = context.table().stream_get_context(stream, &owner);
  if (status == Status::success && owner == context.handle()) return {};
  const std::string device = to_string(context.device());
  if (status == Status::success)
    return Error{ErrorCode::invalid_argument, where,
                 "the stream belongs to another context than the primary one of " + device +
                     ": pass a stream that was made on this GPU"};
  Error error = context.check(status, where, "cuStreamGetCtx on " + device).error();
  if (status == Status::invalid_handle || status == Status::invalid_value) {
    error.code = ErrorCode::invalid_argument;
    error.detail = "this is no stream: " + error.detail;
  }
  return error;
}

}  // namespace

StreamWork::StreamWork(std::shared_ptr<Gpu> gpu, StreamName stream, std::string_view where)
    : gpu_(std::move(gpu)), stream_(stream), where_(where) {}

Result<StreamWork> StreamWork::begin(std::shared_ptr<Gpu> gpu, StreamHandle stream,
                                     std::string_view where) {
  PrimaryContext& context = *gpu->context();
  TENDON_CHECK(context.check_usable(where));
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  TENDON_CHECK(check_owner(context, stream, where));
  TENDON_CHECK(check_capture(context, stream, where));
  return StreamWork(std::move(gpu), StreamName(stream), where);
}

StreamWork& StreamWork::operator=(StreamWork&& other) noexcept {
  if (this == &other) return *this;
  end();
  gpu_ = std::move(other.gpu_);
  stream_ = other.stream_;
  where_ = other.where_;
  kept_ = std::move(other.kept_);
  has_work_ = other.has_work_;
  return *this;
}

StreamWork::~StreamWork() { end(); }

void StreamWork::end() noexcept {
  if (gpu_ == nullptr) return;
  if (has_work_)
    drop_behind(std::move(gpu_), stream_, std::move(kept_));
  else
    kept_.clear();
}

Result<void> StreamWork::copy(DeviceAddress destination, DeviceAddress source,
                              std::uint64_t bytes) {
  if (bytes == 0) return {};
  auto slots = RegisteredSlots::find(source);
  const bool is_from_host = slots != nullptr;
  if (!is_from_host) slots = RegisteredSlots::find(destination);
  if (slots == nullptr) return enqueue_copy(destination, source, bytes);
  auto use = slots->use(is_from_host ? source : destination, bytes, gpu_);
  // First: a copy that fails may have been enqueued.
  for (auto& each : use.kept) keep(std::move(each));
  DeviceAddress other = is_from_host ? destination : source;
  for (const RegisteredSlots::Part& part : use.parts) {
    TENDON_CHECK(is_from_host ? enqueue_copy(other, part.address, part.size_bytes)
                              : enqueue_copy(part.address, other, part.size_bytes));
    other += part.size_bytes;
  }
  return {};
}

Result<void> StreamWork::enqueue_copy(DeviceAddress destination, DeviceAddress source,
                                      std::uint64_t bytes) {
  PrimaryContext& context = *gpu_->context();
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  has_work_ = true;  // a call that fails may have enqueued a part
  const Status status = context.table().copy_async(destination, source, bytes, stream_.here());
  if (status == Status::success) return {};
  return context.check(
      status, where_,
      "cuMemcpyAsync of " + std::to_string(bytes) + " bytes on " + to_string(context.device()));
}

Result<void> StreamWork::write_word(DeviceAddress word, std::uint64_t value) {
  PrimaryContext& context = *gpu_->context();
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  has_work_ = true;
  return context.check(
      context.table().stream_write_value64(stream_.here(), word, value, WriteOrder::fenced), where_,
      "cuStreamWriteValue64_v2 on " + to_string(context.device()));
}

Result<void> StreamWork::gather(FunctionHandle kernel, std::span<const GatherEntry> pieces) {
  PrimaryContext& context = *gpu_->context();
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  while (!pieces.empty()) {
    const auto next = pieces.first(std::min<std::size_t>(pieces.size(), kMaxGatherEntries));
    has_work_ = true;
    const Status status = launch_gather(context.table(), kernel, stream_.here(), next);
    if (status != Status::success)
      return context.check(status, where_,
                           "cuLaunchKernel of " + std::to_string(next.size()) + " pieces on " +
                               to_string(context.device()));
    pieces = pieces.subspan(next.size());
  }
  return {};
}

Result<void> StreamWork::ask() const {
  PrimaryContext& context = *gpu_->context();
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  TENDON_CHECK(check_capture(context, stream_.here(), where_));
  const Status status = context.table().stream_query(stream_.here());
  if (status == Status::not_ready) return late();
  return context.check(status, where_, "cuStreamQuery on " + to_string(context.device()));
}

Error StreamWork::late() const {
  return Error{ErrorCode::timeout, where_,
               to_string(gpu_->context()->device()) +
                   " has not done the work on this stream before the deadline: its memory stays in "
                   "use until it has"};
}

Result<void> StreamWork::wait(Deadline deadline) {
  if (!stream_.is_replaced_here()) {
    auto now = ask();  // an event is polled later
    const bool is_late = !now && now.error().code == ErrorCode::timeout;
    if (!is_late || deadline.has_passed()) return now;
  }
  const auto awaited = std::make_shared<AwaitedAnswer<Result<void>>>();
  TENDON_CHECK(then([awaited](Result<void> done) { awaited->deliver(std::move(done)); }));
  const Error late = this->late();
  auto answer = awaited->wait(deadline, late.where, late.detail);
  // The device thread may be late itself.
  if (answer || answer.error().code != ErrorCode::timeout || stream_.is_replaced_here())
    return answer;
  return ask();
}

Result<void> StreamWork::then(std::function<void(Result<void>)> told) {
  return tell_behind(gpu_, stream_, where_, std::move(told));
}

}  // namespace tendon::v0::detail::cuda
