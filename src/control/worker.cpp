// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <tendon/control/worker.hpp>
#include <utility>

#include "control/flows/zmq_network.hpp"
#include "control/service_thread.hpp"
#include "control/worker_core.hpp"
#include "core/left_to_parent.hpp"
#include "session/proofs.hpp"

namespace tendon {
inline namespace v0 {

Worker::Worker(std::shared_ptr<detail::WorkerCore> core) : core_(std::move(core)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&& other) noexcept {
  if (this != &other) {
    const Worker old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}
Worker::~Worker() {
  if (core_ == nullptr) return;
  if (core_->forked())
    detail::leave_to_parent(core_);
  else
    core_->leave("it was dropped");
}

Result<Worker> Worker::connect(Context& context, std::string_view address,
                               const ParallelLayout& layout, GlobalRank rank, Deadline deadline,
                               WorkerOptions options) {
  TENDON_TRY(place, layout.place_of(rank));
  TENDON_CHECK(detail::refuse_secure(detail::security_of(options), "control.connect",
                                     "controllers and workers"));
  TENDON_CHECK(detail::require_service_thread(context, "control.connect"));
  TENDON_TRY(network, detail::zmq_network());
  TENDON_TRY(wake, detail::open_wake());
  TENDON_TRY(pipe,
             Pipe::connect(context, address, deadline,
                           {.security = {detail::profile_of(options)}, .absent = Absent::fail}));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto core = std::make_shared<detail::WorkerCore>(
      detail::WorkerPlace{.layout = layout,
                          .rank = rank,
                          .at = place,
                          .incarnation = static_cast<std::uint64_t>(
                              std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
                          .host = detail::host_of(address),
                          .options = std::move(options),
                          .address = std::string(address)},
      std::move(network), std::move(wake));
  Worker worker(core);
  TENDON_CHECK(core->join(context, std::move(pipe), deadline));
  return worker;
}

GlobalRank Worker::rank() const noexcept { return core_->place().rank; }
ParallelCoordinates Worker::place() const noexcept { return core_->place().at; }
std::uint64_t Worker::roster() const { return core_->forked() ? 0 : core_->roster(); }
WorkerGroups Worker::groups() const { return core_->forked() ? WorkerGroups{} : core_->groups(); }
bool Worker::sends_outputs() const noexcept { return core_->place().sends_outputs(); }
bool Worker::signals_microbatches() const noexcept { return core_->place().signals_microbatches(); }
Result<Step> Worker::next_step(Deadline deadline) { return core_->next_step(deadline); }
void Worker::give_back(Step step) {
  if (!core_->forked()) core_->give_back(std::move(step));
}
Result<void> Worker::send_outputs(const StepOutputs& outputs, Deadline deadline) {
  return core_->send_outputs(outputs, deadline);
}
Result<void> Worker::signal_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  return core_->signal_microbatch(schedule_id, deadline);
}
Result<void> Worker::rebuild(const Error& cause, Deadline deadline) {
  return core_->rebuild(cause, deadline);
}
void Worker::set_load(double load) { core_->set_load(load); }
FlowStats Worker::stats() const { return core_->forked() ? FlowStats{} : core_->stats(); }
void Worker::leave(std::string_view reason) {
  if (!core_->forked()) core_->leave(reason);
}

}  // namespace v0
}  // namespace tendon
