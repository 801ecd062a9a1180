// SPDX-License-Identifier: Apache-2.0
// Programs with nodes, as the tests of the fabric start them.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/fabric/node.hpp>
#include <utility>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {

/// A program: a Context with a node.
struct Program {
  Context context;
  Node node;
};

inline std::uint64_t missing_in(const Sample& sample) {
  std::uint64_t count = 0;
  for (const Gap& gap : sample.gaps) count += gap.count();
  return count;
}

/// Collects the events of a node.
class Told {
 public:
  explicit Told(Node& node) {
    node.on_event([state = state_](const FabricEvent& event) {
      const std::lock_guard lock(state->mutex);
      state->events.push_back(event);
    });
  }
  [[nodiscard]] std::vector<FabricEvent> of(FabricEventKind kind) const {
    const std::lock_guard lock(state_->mutex);
    std::vector<FabricEvent> found;
    for (const FabricEvent& event : state_->events)
      if (event.kind == kind) found.push_back(event);
    return found;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<FabricEvent> events;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // outlives the node
};

/// Nodes that find each other by addresses, on each path.
class NodesTest : public PipeTest {
 protected:
  /// Starts a program whose node names those that were started before.
  Program& start(const std::string& name, ContextOptions options = {}) {
    NodeOptions node{.domain = "brain",
                     .name = name,
                     .peers = std::vector<std::string>{},
                     .listen = "127.0.0.1:0"};
    for (const auto& program : programs_) node.peers->push_back(program->node.address());
    programs_.push_back(std::make_unique<Program>(make(std::move(options), std::move(node))));
    return *programs_.back();
  }
  void stop(const Program& program) {
    std::erase_if(programs_, [&](const auto& known) { return known.get() == &program; });
  }
  [[nodiscard]] Program make(ContextOptions options, NodeOptions node) const {
    options.lease = kLongLease;
    options.transport = way().transport;
    options.name = node.name;
    Context context = Context::create(options).value();
    Node joined = Node::join(context, std::move(node), kPatience).value();
    return {std::move(context), std::move(joined)};
  }
  [[nodiscard]] static Sample receive(Subscriber& subscriber) {
    return subscriber.recv(kPatience).value();
  }
  // Cuts all links of a program: whatever is under way is lost.
  static void cut_links(const Program& program) {
    const auto links = detail::ContextCore::of(program.context)->links().all();
    for (const auto& link : *links)
      link->fail(Error{ErrorCode::peer_lost, "test", "cut"}, detail::Death::not_proved);
  }

  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace tendon::test
