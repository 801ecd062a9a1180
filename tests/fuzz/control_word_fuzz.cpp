// SPDX-License-Identifier: Apache-2.0
// Words of a controller to a worker on its worker pipe. A worker in a roster, during a step, hears
// one word, and continues or ends with a reason.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "control/controller_core.hpp"
#include "control/worker_core.hpp"
#include "require.hpp"
#include "support/lossy_network.hpp"

namespace {

using namespace tendon;
using namespace std::chrono_literals;
using detail::ControllerCore;
using detail::WorkerCore;

constexpr auto kPatience = 20s;

using tendon::test::require;

/// A controller and its only worker.
class Roster {
 public:
  Roster() {
    controller_->serve(detail::ContextCore::of(here_), Listener::bind(here_, "127.0.0.1:0").value())
        .value();
    std::thread joining([this] {
      worker_
          ->join(there_, Pipe::connect(there_, controller_->address(), kPatience).value(),
                 kPatience)
          .value();
    });
    controller_->wait_for_workers(kPatience).value();
    joining.join();
    controller_->broadcast({.schedule_id = 1}, kPatience).value();
    worker_->next_step(kPatience).value();
  }
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;
  ~Roster() {
    worker_->leave("over");
    controller_->abandon();
  }
  /// False: the worker has ended.
  [[nodiscard]] bool hear(v1::Word word) {
    worker_->on_word(nullptr, std::move(word));
    (void)worker_->stats();
    const auto step = worker_->next_step(Deadline::now());
    if (step) return worker_->send_outputs({.schedule_id = 1}, kPatience).has_value();
    require(!step.error().detail.empty());
    return step.error().code == ErrorCode::timeout;
  }

 private:
  std::shared_ptr<test::LossyNetwork> network_ =
      std::make_shared<test::LossyNetwork>(test::LossyOptions{});
  ParallelLayout layout_ = ParallelLayout::make({}).value();
  Context here_ = Context::create().value();
  Context there_ = Context::create().value();
  std::shared_ptr<ControllerCore> controller_ = std::make_shared<ControllerCore>(
      layout_, ControllerOptions{}, network_, detail::open_wake().value(),
      std::string(detail::kRunIdBytes, 'r'));
  std::shared_ptr<WorkerCore> worker_ =
      std::make_shared<WorkerCore>(detail::WorkerPlace{.layout = layout_,
                                                       .rank = {0},
                                                       .at = layout_.place_of({0}).value(),
                                                       .incarnation = 1,
                                                       .host = {},
                                                       .options = {}},
                                   network_, detail::open_wake().value());
};

// Forming a roster takes far longer than hearing a word.
bool ends_the_roster(const v1::Word& word) {
  return word.has_roster_closed() || word.has_not_retained() || word.has_stop();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static auto& roster = *new std::optional<Roster>;  // its threads outlive main()
  v1::Word word;
  if (!word.ParseFromArray(data, static_cast<int>(size_bytes))) return 0;
  if (ends_the_roster(word) && size_bytes % 16 != 0) return 0;
  if (!roster) roster.emplace();
  if (!roster->hear(std::move(word))) roster.reset();
  return 0;
}
