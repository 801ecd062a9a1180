// SPDX-License-Identifier: Apache-2.0
// A process with a limited number of threads, and the objects that need some.
#include "process/few_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <tendon/tendon.hpp>
#include <vector>

#include "fabric/zenoh/zenoh_session.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

Result<void> exchange(Pipe& here, Pipe& there) {
  TENDON_CHECK(here.send(numbered(7), kPatience));
  TENDON_TRY(batch, there.recv(kPatience));
  return number_of(batch) == 7 ? Result<void>()
                               : Error{ErrorCode::internal, "test", "another batch came"};
}

Result<void> make_pipe(const std::string& host) {
  TENDON_TRY(context, Context::create({.name = "here"}));
  TENDON_TRY(other, Context::create({.name = "there"}));
  TENDON_TRY(listener, Listener::bind(context, "127.0.0.1:0"));
  const std::string address = listener.address();
  TENDON_TRY(client, Pipe::connect(other, host + address.substr(address.rfind(':')), kPatience));
  TENDON_TRY(server, listener.accept(kPatience));
  return exchange(client, server);
}

Result<void> make_server() {
  TENDON_TRY(context, Context::create({.name = "server"}));
  TENDON_TRY(other, Context::create({.name = "client"}));
  TENDON_TRY(server, Server::serve(context, "127.0.0.1:0", [](Pipe pipe) {
               while (auto batch = pipe.recv(kPatience))
                 if (!pipe.send(*batch, kPatience)) return;
             }));
  TENDON_TRY(client, Pipe::connect(other, server.address(), kPatience));
  return exchange(client, client);
}

/// Two nodes that know each other's address.
struct TwoNodes {
  Context first_context;
  Context second_context;
  Node first;
  Node second;
};
Result<TwoNodes> make_nodes() {
  TENDON_TRY(first_context, Context::create({.name = "first"}));
  TENDON_TRY(second_context, Context::create({.name = "second"}));
  TENDON_TRY(
      first,
      Node::join(first_context,
                 {.name = "first", .peers = std::vector<std::string>{}, .listen = "127.0.0.1:0"},
                 kPatience));
  TENDON_TRY(second,
             Node::join(second_context,
                        {.name = "second", .peers = std::vector<std::string>{first.address()}},
                        kPatience));
  return TwoNodes{std::move(first_context), std::move(second_context), std::move(first),
                  std::move(second)};
}

Result<void> make_topic() {
  TENDON_TRY(nodes, make_nodes());
  TENDON_TRY(publisher, Publisher::declare(nodes.first, "count"));
  TENDON_TRY(subscriber, Subscriber::declare(nodes.second, "count"));
  TENDON_CHECK(publisher.publish(numbered(1)));
  TENDON_TRY(sample, subscriber.recv(kPatience));
  return number_of(*sample.tensors) == 1
             ? Result<void>()
             : Error{ErrorCode::internal, "test", "another sample came"};
}

Result<void> make_callback() {
  TENDON_TRY(nodes, make_nodes());
  std::atomic<int> came{0};
  TENDON_TRY(publisher, Publisher::declare(nodes.first, "count"));
  TENDON_TRY(subscriber, Subscriber::declare(nodes.second, "count",
                                             {.on_sample = [&](const Sample&) { ++came; }}));
  TENDON_CHECK(publisher.publish(numbered(1)));
  if (eventually([&] { return came == 1; })) return {};
  return Error{ErrorCode::internal, "test", "no sample came"};
}

Result<void> make_responder() {
  TENDON_TRY(nodes, make_nodes());
  TENDON_TRY(responder,
             Responder::declare(nodes.first, "ask",
                                [](const Request&) -> Result<TensorDict> { return numbered(2); }));
  TENDON_TRY(reply, nodes.second.call("ask", numbered(1), kPatience));
  return number_of(reply.tensors) == 2 ? Result<void>()
                                       : Error{ErrorCode::internal, "test", "another answer came"};
}

Result<void> make_node_with_zenoh() {
  TENDON_TRY(context, Context::create({.name = "found"}));
  TENDON_TRY(node, Node::join(context, {.domain = "few", .name = "found"}, kPatience));
  TENDON_TRY(publisher, Publisher::declare(node, "count"));
  return node.survey(kPatience);
}

// Without a thread of Zenoh the node still waits for a router, and says why in the log.
Result<void> make_node_with_zenoh_later() {
  TENDON_TRY(context, Context::create({.name = "found"}));
  TENDON_TRY(node,
             Node::join(context,
                        {.domain = "few", .name = "found", .discovery = DiscoveryNeed::background},
                        kPatience));
  TENDON_TRY(publisher, Publisher::declare(node, "count"));
  return {};
}

class FewThreads : public testing::TestWithParam<Maker> {};

TEST_P(FewThreads, MakeItWholeOrAreAnError) { expect_whole_or_error(GetParam()); }

std::vector<Maker> makers() {
  std::vector<Maker> all = {
      {"context", 1,
       []() -> Result<void> {
         TENDON_TRY(context, Context::create());
         return context.close(kPatience);
       }},
      {"pipe", 2, [] { return make_pipe("127.0.0.1"); }},
      {"pipe_by_name", 3, [] { return make_pipe("localhost"); }},
      {"server", 4, make_server},
      {"topic", 6, make_topic},
      {"callback", 7, make_callback},
      {"responder", 7, make_responder},
  };
  if (detail::zenoh_version()) {
    all.push_back({"zenoh", 40, make_node_with_zenoh});
    all.push_back(
        {"zenoh_in_the_background", 40, make_node_with_zenoh_later, make_node_with_zenoh});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, FewThreads, testing::ValuesIn(makers()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tendon::test
