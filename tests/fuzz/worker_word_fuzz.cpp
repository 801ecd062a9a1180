// SPDX-License-Identifier: Apache-2.0
// Words of a worker to the controller on its worker pipe, from a process that has joined and is
// ready. A byte decides the length of each (0: all the rest). The controller continues: it replies
// to the words behind them, or ends the pipe and admits the next one.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "control/controller_core.hpp"
#include "require.hpp"
#include "support/lossy_network.hpp"

namespace {

using namespace tendon;
using namespace std::chrono_literals;
using detail::ControllerCore;

constexpr auto kPatience = 20s;

using tendon::test::require;

class Hostile {
 public:
  Hostile() {
    controller_->serve(detail::ContextCore::of(here_), Listener::bind(here_, "127.0.0.1:0").value())
        .value();
  }

  void say(Bytes input) {
    if (!pipe_) join();
    while (!input.empty() && pipe_) {
      const auto length = static_cast<std::size_t>(input.front());
      input = input.subspan(1);
      const Bytes bytes = length == 0 ? input : input.first(std::min(length, input.size()));
      input = input.subspan(bytes.size());
      if (!pipe_->send(bytes, {}, kPatience)) pipe_.reset();
    }
    if (!pipe_ || !replies()) pipe_.reset();
    (void)controller_->status();
    (void)controller_->stats();
    if (controller_->status().state != RosterState::running) pipe_.reset();
  }

 private:
  [[nodiscard]] bool say(const v1::Word& word) {
    return pipe_->send(as_bytes(word.SerializeAsString()), {}, kPatience).has_value();
  }
  [[nodiscard]] std::optional<v1::Word> hear() {
    const auto message = pipe_->recv_message(kPatience);
    if (!message) {
      require(message.error().code != ErrorCode::timeout);
      return std::nullopt;
    }
    v1::Word word;
    require(!message->tensors);
    require(
        word.ParseFromArray(message->bytes.data(), static_cast<int>(message->bytes.size_bytes())));
    return word;
  }
  [[nodiscard]] bool replies() {
    v1::Word set;
    set.mutable_store_set()->set_key("key");
    set.mutable_store_set()->set_value(std::to_string(++questions_));
    v1::Word get;
    get.mutable_store_get()->set_key("key");
    if (!say(set) || !say(get)) return false;
    while (const auto word = hear())
      if (word->store_value().value() == std::to_string(questions_)) return true;
    return false;
  }
  void join() {
    // The controller learns of an ended pipe later.
    const auto is_there = [](const WorkerStatus& worker) {
      return worker.state != WorkerStatus::State::gone;
    };
    while (std::ranges::any_of(controller_->status().workers, is_there)) std::this_thread::yield();
    pipe_.emplace(Pipe::connect(there_, controller_->address(), kPatience).value());
    v1::Word word;
    word.mutable_join()->set_version(detail::kControlVersion);
    word.mutable_join()->set_tensor_parallel_size(1);
    word.mutable_join()->set_pipeline_parallel_size(1);
    word.mutable_join()->set_kv_parallel_size(1);
    word.mutable_join()->set_incarnation(7);
    require(say(word));
    std::thread forming([this] {
      const bool first = controller_->status().roster == 0;
      (first ? controller_->wait_for_workers(kPatience) : controller_->rebuild(kPatience)).value();
      controller_->broadcast({.schedule_id = ++schedule_id_}, kPatience).value();
    });
    for (auto heard = hear(); heard; heard = hear()) {
      if (!heard->has_rebuild()) continue;
      v1::Word ready;
      ready.set_run_id(heard->run_id());
      ready.set_roster(heard->roster());
      ready.mutable_ready()->set_members(1);
      require(say(ready));
      break;
    }
    forming.join();
  }

  Context here_ = Context::create().value();
  Context there_ = Context::create().value();
  std::shared_ptr<ControllerCore> controller_ = std::make_shared<ControllerCore>(
      ParallelLayout::make({}).value(), ControllerOptions{},
      std::make_shared<test::LossyNetwork>(test::LossyOptions{}), detail::open_wake().value(),
      std::string(detail::kRunIdBytes, 'r'));
  std::optional<Pipe> pipe_;
  std::uint64_t questions_ = 0;
  std::uint64_t schedule_id_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static auto* const hostile = new Hostile;  // its threads outlive main()
  hostile->say(std::as_bytes(std::span(data, size_bytes)));
  return 0;
}
