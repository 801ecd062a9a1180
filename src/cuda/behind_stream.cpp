// SPDX-License-Identifier: Apache-2.0
#include "cuda/behind_stream.hpp"

#include <string>
#include <tendon/observe/log.hpp>
#include <utility>

#include "cuda/driver_errors.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kDrop = "cuda.drop";

/// Records an event behind all work of the stream.
Result<EventHandle> record(Gpu& gpu, const StreamName& stream, std::string_view where) {
  PrimaryContext& context = *gpu.context();
  const PrimaryContext::Current current(context);
  TENDON_CHECK(current.made());
  TENDON_CHECK(check_capture(context, stream.here(), where));
  TENDON_TRY(event, gpu.take_event());
  const Status status = context.table().event_record(event, stream.here());
  if (status == Status::success) return event;
  gpu.put_event(event);
  return context.check(status, where, "cuEventRecord on " + to_string(context.device())).error();
}

/// `then` is called in the device thread, without the event.
Result<void> watch(const std::shared_ptr<Gpu>& gpu, EventHandle event,
                   std::function<void(Status)> then) {
  auto watched = gpu->thread().watch(
      {gpu->context()->handle(), event, [gpu, event, then = std::move(then)](Status status) {
         gpu->put_event(event);
         then(status);
       }});
  if (!watched) gpu->put_event(event);
  return watched;
}

/// Owners that wait for the GPU, and the ways in which they do.
class Waiting : public std::enable_shared_from_this<Waiting> {
 public:
  Waiting(std::shared_ptr<Gpu> gpu, StreamName stream, Owners owners)
      : gpu_(std::move(gpu)), stream_(stream), owners_(std::move(owners)) {}

  void begin() {
    if (is_marked()) return;
    // The caller neither waits for the GPU nor for the end of a capture.
    auto posted = gpu_->thread().post([self = shared_from_this()] { self->insist(); });
    if (!posted) stay(posted.error().detail);
  }

 private:
  [[nodiscard]] bool is_marked() {
    const auto event = record(*gpu_, stream_, kDrop);
    return event && watch(gpu_, *event, [self = shared_from_this()](Status status) {
                      if (is_released(status))
                        self->drop(status);
                      else
                        self->synchronise();
                    }).has_value();
  }

  // Called in the device thread

  void drop(Status status) {
    (void)gpu_->context()->check(status, kDrop, "");  // notes a loss
    owners_.clear();
  }

  void insist() {
    if (is_usable() && !is_marked()) synchronise();
  }

  void synchronise() {
    if (!is_usable()) return;
    if (stream_.is_replaced_here()) {
      stay("no event can be recorded");
      return;
    }
    const PrimaryContext::Current current(*gpu_->context());
    const Status status = gpu_->context()->table().stream_synchronize(stream_.here());
    if (is_released(status))
      drop(status);
    else
      stay(status_text(gpu_->context()->table(), status));
  }

  /// False: nothing more can be done now.
  [[nodiscard]] bool is_usable() {
    const PrimaryContext::Current current(*gpu_->context());
    const bool is_over = current.status() != Status::success && is_released(current.status());
    if (is_over) {
      drop(current.status());
      return false;
    }
    if (!current.made()) {
      stay(current.made().error().detail);
      return false;
    }
    if (look_at_capture(gpu_->context()->table(), stream_.here()) != Status::not_ready) return true;
    wait_for_capture();
    return false;
  }

  void wait_for_capture() {
    WatchedEvent capture{gpu_->context()->handle(), nullptr,
                         [self = shared_from_this()](Status) { self->insist(); }};
    capture.captured = stream_.here();
    auto watched = gpu_->thread().watch(std::move(capture));
    if (!watched) stay(watched.error().detail);
  }

  void stay(std::string_view why) {
    gpu_->keep_for_good(std::move(owners_));
    log(LogLevel::warn, kDrop,
        "memory that work on " + to_string(gpu_->context()->device()) +
            " uses stays to the end of the process, because nothing tells when the work is done: " +
            std::string(why));
  }

  const std::shared_ptr<Gpu> gpu_;
  const StreamName stream_;
  Owners owners_;
};

}  // namespace

void drop_behind(std::shared_ptr<Gpu> gpu, StreamName stream, Owners owners) {
  if (owners.empty() || !gpu->context()->is_of_this_process()) return;
  std::make_shared<Waiting>(std::move(gpu), stream, std::move(owners))->begin();
}

Result<void> tell_behind(const std::shared_ptr<Gpu>& gpu, StreamName stream, std::string_view where,
                         std::function<void(Result<void>)> told) {
  TENDON_TRY(event, record(*gpu, stream, where));
  return watch(gpu, event,
               [context = gpu->context(), where, told = std::move(told)](Status status) {
                 told(context->check(status, where, "work on " + to_string(context->device())));
               });
}

Result<void> check_capture(PrimaryContext& context, StreamHandle stream, std::string_view where) {
  const Status status = look_at_capture(context.table(), stream);
  if (status != Status::not_ready)
    return context.check(status, where,
                         "cuStreamGetCaptureInfo_v2 on " + to_string(context.device()));
  return Error{ErrorCode::invalid_argument, where,
               "the stream on " + to_string(context.device()) +
                   ", or one that it synchronises with, is being captured, and a graph cannot hold "
                   "this: end the capture first"};
}

}  // namespace tendon::v0::detail::cuda
