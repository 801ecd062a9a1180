// SPDX-License-Identifier: Apache-2.0
#include <tendon/control/controller.hpp>
#include <utility>

#include "control/controller_core.hpp"
#include "control/flows/zmq_network.hpp"
#include "control/service_thread.hpp"
#include "core/left_to_parent.hpp"
#include "session/nonce128.hpp"
#include "session/proofs.hpp"

namespace tendon {
inline namespace v0 {

Controller::Controller(std::shared_ptr<detail::ControllerCore> core) : core_(std::move(core)) {}
Controller::Controller(Controller&&) noexcept = default;
Controller& Controller::operator=(Controller&& other) noexcept {
  if (this != &other) {
    const Controller old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}
Controller::~Controller() {
  if (core_ == nullptr) return;
  if (core_->forked())
    detail::leave_to_parent(core_);
  else
    core_->abandon();
}

Result<Controller> Controller::bind(Context& context, const ParallelLayout& layout,
                                    std::string_view address, ControllerOptions options) {
  if (options.idle_heartbeat.count() <= 0 || options.step_heartbeat.count() <= 0) {
    return Error{ErrorCode::invalid_argument, "control.bind",
                 "heartbeats need an interval of at least 1 ms"};
  }
  if (options.hang_timeout.count() <= 0) {
    return Error{ErrorCode::invalid_argument, "control.bind",
                 "hang_timeout is " + std::to_string(options.hang_timeout.count()) +
                     " ms; legal is at least 1 ms"};
  }
  TENDON_CHECK(detail::refuse_secure(detail::security_of(options), "control.bind",
                                     "controllers and workers"));
  TENDON_CHECK(detail::require_service_thread(context, "control.bind"));
  TENDON_TRY(network, detail::zmq_network());
  TENDON_TRY(wake, detail::open_wake());
  TENDON_TRY(run, detail::random_nonce());
  TENDON_TRY(listener,
             Listener::bind(context, address, {.security = {detail::profile_of(options)}}));
  auto core = std::make_shared<detail::ControllerCore>(
      layout, std::move(options), std::move(network), std::move(wake),
      std::string(reinterpret_cast<const char*>(run.data()), run.size()));
  TENDON_CHECK(core->serve(detail::ContextCore::of(context), std::move(listener)));
  return Controller(std::move(core));
}

std::string Controller::address() const { return core_->address(); }
const ParallelLayout& Controller::layout() const& noexcept { return core_->layout(); }
Result<void> Controller::wait_for_workers(Deadline deadline) {
  return core_->wait_for_workers(deadline);
}
Result<void> Controller::rebuild(Deadline deadline) { return core_->rebuild(deadline); }
Result<void> Controller::broadcast(const StepInputs& inputs, Deadline deadline) {
  return core_->broadcast(inputs, deadline);
}
Result<std::vector<StepOutputs>> Controller::collect(std::uint64_t schedule_id, Deadline deadline) {
  return core_->collect(schedule_id, deadline);
}

void Controller::give_back(std::vector<StepOutputs> outputs) {
  core_->give_back(std::move(outputs));
}
Result<void> Controller::wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  return core_->wait_for_microbatch(schedule_id, deadline);
}
Result<void> Controller::cancel_step(std::uint64_t schedule_id, Deadline deadline) {
  return core_->cancel_step(schedule_id, deadline);
}
Result<WorkerStatus> Controller::ask(GlobalRank rank, Deadline deadline) {
  return core_->ask(rank, deadline);
}
ControllerStatus Controller::status() const {
  return core_->forked() ? ControllerStatus{} : core_->status();
}
FlowStats Controller::stats() const { return core_->forked() ? FlowStats{} : core_->stats(); }
Result<void> Controller::drain(Deadline deadline) { return core_->drain(deadline); }
Result<void> Controller::stop(std::string_view reason, Deadline deadline) {
  return core_->stop(reason, deadline);
}

}  // namespace v0
}  // namespace tendon
