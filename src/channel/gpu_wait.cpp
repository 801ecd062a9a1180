// SPDX-License-Identifier: Apache-2.0
#include "channel/gpu_wait.hpp"

#include <optional>
#include <utility>

#include "channel/gpu_answer.hpp"

namespace tendon::v0::detail {
namespace {

/// Lets a thread that is about to sleep see an answer that has just arrived.
class WaitsForGpu final : public Work {
 public:
  [[nodiscard]] GpuAnswer& answer() noexcept { return answer_; }
  bool progress() override { return !answer_.is_over(); }
  [[nodiscard]] bool has_input() const noexcept override { return answer_.is_over(); }

 private:
  GpuAnswer answer_;
};

}  // namespace

Result<void> wait_for_gpu(cuda::StreamWork& work, const std::shared_ptr<ContextCore>& context,
                          Link* link, Deadline deadline,
                          const std::function<Result<void>()>& usable) {
  auto now = work.wait(Deadline::now());
  if (now || now.error().code != ErrorCode::timeout || deadline.is_poll()) return now;
  const auto awaited = std::make_shared<WaitsForGpu>();
  TENDON_CHECK(work.then([awaited, weak = std::weak_ptr(context)](Result<void> done) {
    awaited->answer().finish(std::move(done));
    if (const auto core = weak.lock()) core->wake_for_work();
  }));
  context->add_work(awaited);
  std::optional<Error> error;
  (void)context->wait(link, deadline, [&] {
    if (awaited->answer().is_over()) return true;
    if (auto still = usable(); !still) error = std::move(still).error();
    return error.has_value();
  });
  if (awaited->answer().is_over()) return awaited->answer().result();
  if (error) return *std::move(error);
  return work.wait(Deadline::now());  // the device thread may be late itself
}

}  // namespace tendon::v0::detail
