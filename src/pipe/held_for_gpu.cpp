// SPDX-License-Identifier: Apache-2.0
#include "pipe/held_for_gpu.hpp"

#include <string_view>
#include <utility>

#include "cuda/stream_work.hpp"
#include "pipe/direct_fill.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/devices_out.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "pipe.send_async";

}  // namespace

Result<void> HeldForGpu::begin(void* stream) {
  TENDON_TRY(work, cuda::StreamWork::begin(what_.source.gpu,
                                           static_cast<cuda::StreamHandle>(stream), kHere));
  return work.then([self = shared_from_this()](Result<void> ready) {
    if (!ready) return self->finish(std::move(ready));
    self->tries_.store(Tries::none);
    self->what_.tell();
  });
}

HeldForGpu::~HeldForGpu() {
  if (answer_.is_over()) return;
  (void)what_.source.gpu->thread().post([dropped = std::move(what_.batch)] {});
}

void HeldForGpu::try_again() {
  if (answer_.is_over() || tries_.load() == Tries::behind_stream) return;
  if (const auto link = what_.link.lock())
    (void)link->shared_memory()->devices_out().copies()->are_over();  // the end of one is news
  if (tries_.exchange(Tries::one_and_another) == Tries::none) post(Try::first);
  if (is_timed_.exchange(true)) return;
  if (const auto context = what_.context.lock()) (void)context->add_timed(kPause, weak_from_this());
}

void HeldForGpu::on_time() {
  is_timed_.store(false);
  const auto context = what_.context.lock();
  if (context == nullptr || answer_.is_over()) return;
  (void)context->links().collect_returns(LinkTable::Of::all);
  what_.tell();
}

void HeldForGpu::post(Try which) {
  auto posted =
      what_.source.gpu->thread().post([self = shared_from_this(), which] { self->attempt(which); });
  if (!posted) finish(std::move(posted));
}

// The second try finds the result of the first one's request to the device thread.
void HeldForGpu::attempt(Try which) {
  if (which == Try::first) tries_.store(Tries::one);
  auto filled = fill();
  if (!filled) return finish(std::move(filled).error());
  if (*filled) return finish({});
  if (which == Try::first) return post(Try::second);
  Tries now = Tries::one;
  if (!tries_.compare_exchange_strong(now, Tries::none)) post(Try::first);
}

Result<bool> HeldForGpu::fill() {
  const auto context = what_.context.lock();
  const auto link = what_.link.lock();
  if (context == nullptr || link == nullptr)
    return Error{ErrorCode::context_closed, kHere, "the context was closed"};
  TENDON_TRY(stream, what_.source.gpu->own_stream());
  const DirectSource direct{.batch = what_.batch,
                            .gpu = what_.source,
                            .layout = what_.layout,
                            .stream = stream,
                            .context = context,
                            .link = *link,
                            .usable = [] { return Result<void>(); },
                            .is_behind_held = [] { return false; }};
  TENDON_TRY(tried, try_direct(direct, Deadline::now()));
  if (tried.fill == nullptr)
    return tried.may_be_later() ? Result<bool>(false) : *std::move(tried.why);
  tried.fill->leave();
  fill_ = std::move(tried.fill);
  return true;
}

void HeldForGpu::finish(Result<void> result) {
  what_.batch = TensorDict();
  answer_.finish(std::move(result));
  what_.tell();
}

}  // namespace tendon::v0::detail
