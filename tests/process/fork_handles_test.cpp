// SPDX-License-Identifier: Apache-2.0
// docs/fork.md, "What a child may do": each handle of each class, dropped, called and closed in a
// child of a process whose threads use all of them, kept until the child exits, and over an exec.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <tendon/group/stage.hpp>
#include <tendon/tendon.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "process/survivor.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/group_members.hpp"
#include "support/pipe_pair.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

/// At least one handle of each class, all in use.
struct Handles {
  std::optional<Context> here;
  std::optional<Context> there;
  std::optional<Listener> listener;
  std::optional<Pipe> sending;
  std::optional<Pipe> receiving;
  std::optional<Pipe> busy;
  std::optional<Pipe> other_end;
  std::optional<Server> server;
  std::optional<Pool> pool;
  std::optional<Storage> storage;
  std::optional<Loan> loan;
  std::optional<TensorDict> view;
  std::optional<Completion<Pipe>> accept_completion;
  std::optional<Completion<TensorDict>> recv_completion;
  std::optional<Completion<Sample>> sample_completion;
  std::optional<Completion<void>> barrier_completion;
  std::array<std::optional<Group>, 2> groups;
  std::optional<Node> node;
  std::optional<Node> other_node;
  std::optional<Publisher> publisher;
  std::optional<Subscriber> subscriber;
  std::optional<Subscriber> idle_subscriber;
  std::optional<Subscriber> called_subscriber;
  std::optional<Sample> sample;
  std::optional<Responder> responder;
};
// Static, so that a child that exits destroys them.
std::optional<Handles> all;

/// The uses of one handle that a child may try.
struct Row {
  const char* name;
  std::function<void()> drop;
  /// Makes every call, and ends the handle with the last: false unless all answer as the table
  /// says, at once.
  std::function<bool()> call = [] { return true; };
};

template <class T>
bool forked(const Result<T>& result) {
  return !result && result.error().code == ErrorCode::forked;
}

std::vector<Row> rows() {
  Handles& h = *all;
  const auto schema = bytes_schema(100);
  std::vector<Row> rows;
  rows.push_back(
      {"context", [&h] { h.here.reset(); },
       [&h] {
         h.here->on_member([](const MemberEvent&) {});
         return forked(Listener::bind(*h.here, "127.0.0.1:0")) &&
                forked(Pipe::connect(*h.here, "127.0.0.1:1", kPatience)) &&
                forked(Server::serve(*h.here, "127.0.0.1:0", [](Pipe) {})) &&
                forked(Node::join(*h.here, {.peers = std::vector<std::string>{}}, kPatience)) &&
                forked(
                    Group::join(*h.here, Rendezvous::at("unix:@x", GroupRank{0}, 2), kPatience)) &&
                h.here->members().empty() && !h.here->describe().empty() && !h.here->progress() &&
                !h.here->arm() && h.here->fd() == -1 && forked(h.here->close(kPatience));
       }});
  rows.push_back({"listener", [&h] { h.listener.reset(); },
                  [&h] {
                    const bool answers = !h.listener->address().empty() &&
                                         forked(h.listener->accept(kPatience)) &&
                                         forked(h.listener->accept_async().wait(kPatience));
                    h.listener->close();
                    return answers;
                  }});
  rows.push_back({"pipe", [&h] { h.receiving.reset(); },
                  [&h, schema] {
                    Pipe& pipe = *h.receiving;
                    TensorDict into = patterned(1, 100);
                    const bool answers =
                        forked(pipe.send(numbered(1), kPatience)) &&
                        forked(pipe.send(Bytes(), {}, kPatience)) &&
                        forked(pipe.send_async(numbered(1)).wait(kPatience)) &&
                        forked(pipe.loan(schema, kPatience)) && forked(pipe.recv(kPatience)) &&
                        forked(pipe.recv_into(into, kPatience)) &&
                        forked(pipe.recv_message(kPatience)) &&
                        forked(pipe.recv_async().wait(kPatience)) &&
                        forked(pipe.recv_message_async().wait(kPatience)) &&
                        forked(pipe.flush(kPatience)) && forked(pipe.finish_sending(kPatience)) &&
                        pipe.stats().messages_received == 0 && pipe.peer().name == "here" &&
                        forked(pipe.close(kPatience));
                    pipe.cancel();
                    return answers;
                  }});
  rows.push_back({"busy_pipe", [&h] { h.busy.reset(); },
                  [&h] {
                    return forked(h.busy->send(numbered(1), kPatience)) &&
                           forked(h.other_end->recv(kPatience)) && forked(h.busy->close(kPatience));
                  }});
  rows.push_back({"server", [&h] { h.server.reset(); },
                  [&h] {
                    return !h.server->address().empty() && h.server->client_count() == 0 &&
                           forked(h.server->close(kPatience));
                  }});
  rows.push_back(
      {"pool", [&h] { h.pool.reset(); },
       [&h] { return forked(h.pool->allocate(100)) && h.pool->summary().loaned_count == 0; }});
  rows.push_back({"storage", [&h] { h.storage.reset(); }});
  rows.push_back({"loan", [&h] { h.loan.reset(); },
                  [&h] { return forked(h.sending->send(std::move(*h.loan), kPatience)); }});
  rows.push_back({"tensors", [&h] { h.view.reset(); }});
  rows.push_back({"accept_completion", [&h] { h.accept_completion.reset(); },
                  [&h] {
                    h.accept_completion->on_done([](const Result<Pipe>&) {});
                    h.accept_completion->cancel();
                    return forked(h.accept_completion->wait(kPatience));
                  }});
  rows.push_back({"recv_completion", [&h] { h.recv_completion.reset(); },
                  [&h] {
                    h.recv_completion->cancel();
                    const bool answers = forked(h.recv_completion->wait(kPatience));
                    std::move(*h.recv_completion).give_back();
                    return answers;
                  }});
  rows.push_back({"sample_completion", [&h] { h.sample_completion.reset(); },
                  [&h] {
                    h.sample_completion->cancel();
                    return forked(h.sample_completion->wait(kPatience));
                  }});
  rows.push_back({"barrier_completion", [&h] { h.barrier_completion.reset(); },
                  [&h] {
                    h.barrier_completion->expire();
                    return forked(h.barrier_completion->wait(kPatience));
                  }});
  rows.push_back(
      {"group", [&h] { h.groups[0].reset(); },
       [&h] {
         Group& group = *h.groups[0];
         const std::array ranks{GroupRank{0}};
         const Tensor values = Tensor::zeros(DType::f32, Shape({4})).value();
         const bool answers =
             forked(group.barrier(kPatience)) &&
             forked(group.all_reduce(values, ReduceOp::sum, kPatience)) &&
             forked(group.all_reduce_async(values, ReduceOp::sum).wait(kPatience)) &&
             forked(group.subgroup(ranks, kPatience)) &&
             forked(group.split(std::array{GlobalRank{0}}, kPatience)) &&
             forked(group.send(values, To{GroupRank{1}}, kPatience)) &&
             forked(group.send_async(values, To{GroupRank{1}}).wait(kPatience)) &&
             forked(group.recv(values, From{GroupRank{1}}, kPatience)) &&
             forked(group.recv_async(values, From{GroupRank{1}}).wait(kPatience)) &&
             forked(group.init_remote(numbered(1), To{GroupRank{1}}, kPatience)) &&
             forked(group.from_remote_init(From{GroupRank{1}}, kPatience)) &&
             forked(group.broadcast_init(numbered(1), GroupRank{0}, kPatience)) &&
             forked(send_to_stage(group, group, values, GroupRank{1}, kPatience)) &&
             forked(send_to_stage_async(group, group, values, GroupRank{1}).wait(kPatience)) &&
             forked(recv_from_stage(group, group, values, GroupRank{1}, kPatience)) &&
             forked(recv_from_stage_async(group, group, values, GroupRank{1}).wait(kPatience)) &&
             forked(group.shrink(kPatience)) && forked(group.grow(kPatience)) &&
             forked(group.rebuild(kPatience)) && group.size() == 0 && group.members().empty() &&
             !group.name().empty() && group.status().state == GroupStatus::State::idle &&
             !group.describe().empty();
         (void)group.last_complete_sequence();
         group.abort("in a child");
         return answers;
       }});
  rows.push_back({"node", [&h] { h.node.reset(); },
                  [&h] {
                    Node& node = *h.node;
                    node.on_event([](const FabricEvent&) {});
                    const bool answers =
                        forked(node.survey(kPatience)) &&
                        forked(node.call("ask", numbered(1), kPatience)) &&
                        forked(node.call_all("ask", numbered(1), kPatience)) &&
                        forked(node.peer_stats("there")) &&
                        forked(node.has_plain_subscribers("count", kPatience)) &&
                        forked(Publisher::declare(node, "other")) &&
                        forked(Subscriber::declare(node, "other")) &&
                        forked(Responder::declare(
                            node, "other",
                            [](const Request&) -> Result<TensorDict> { return numbered(1); })) &&
                        node.nodes().empty() && node.publishers().empty() &&
                        node.subscribers().empty() && node.responders().empty() &&
                        node.call_stats().calls == 0;
                    node.close();
                    return answers;
                  }});
  rows.push_back({"publisher", [&h] { h.publisher.reset(); },
                  [&h, schema] {
                    return forked(h.publisher->publish(numbered(1))) &&
                           forked(h.publisher->loan(schema)) &&
                           forked(h.publisher->wait_for_subscribers(9, kPatience)) &&
                           h.publisher->stats().published == 0 &&
                           succeeds(h.publisher->close(kPatience));
                  }});
  rows.push_back({"subscriber", [&h] { h.subscriber.reset(); },
                  [&h] {
                    h.subscriber->on_event([](const FabricEvent&) {});
                    const bool answers = forked(h.subscriber->recv(kPatience)) &&
                                         forked(h.subscriber->recv_async().wait(kPatience)) &&
                                         forked(h.subscriber->wait_for_publishers(9, kPatience)) &&
                                         h.subscriber->stats().received == 0;
                    h.subscriber->close();
                    return answers;
                  }});
  rows.push_back({"called_subscriber", [&h] { h.called_subscriber.reset(); },
                  [&h] {
                    h.called_subscriber->close();
                    return true;
                  }});
  rows.push_back({"sample", [&h] { h.sample.reset(); }});
  rows.push_back({"responder", [&h] { h.responder.reset(); },
                  [&h] {
                    return h.responder->stats().answered == 0 &&
                           succeeds(h.responder->close(kPatience));
                  }});
  return rows;
}

/// A child inherits the stacks of its parent's threads, and its own threads reuse them.
void run_own_threads() {
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) thread = std::thread([] {});
  for (std::thread& thread : threads) thread.join();
}

class ForkedHandles : public PathTest {
 protected:
  void SetUp() override {
    if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
    make();
    use();
  }
  void TearDown() override {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    all.reset();
  }

  void make() {
    Handles& h = all.emplace();
    h.here = Context::create({.name = "here", .transport = GetParam()}).value();
    h.there = Context::create({.name = "there", .transport = GetParam()}).value();
    h.listener = Listener::bind(*h.there, "127.0.0.1:0").value();
    std::tie(h.sending, h.receiving) = connect();
    std::tie(h.busy, h.other_end) = connect();
    ASSERT_TRUE(succeeds(h.sending->send(patterned(1, 100'000), kPatience)));
    h.view = h.receiving->recv(kPatience).value();
    h.loan = h.sending->loan(bytes_schema(50'000), kPatience).value();
    h.pool = h.here->pool();
    h.storage = h.pool->allocate(50'000).value();
    h.server = Server::serve(*h.there, "127.0.0.1:0", [](Pipe client) {
                 while (auto got = client.recv(kPatience)) (void)client.send(*got, kPatience);
               }).value();
    asking_ = Pipe::connect(*h.here, h.server->address(), kPatience).value();
    h.accept_completion.emplace(h.listener->accept_async());
    h.recv_completion.emplace(h.receiving->recv_async());
    make_nodes();
    make_group();
  }
  std::pair<std::optional<Pipe>, std::optional<Pipe>> connect() {
    Pipe from = Pipe::connect(*all->here, all->listener->address(), kPatience).value();
    Pipe to = all->listener->accept(kPatience).value();
    return {std::move(from), std::move(to)};
  }
  void make_nodes() {
    Handles& h = *all;
    h.node =
        Node::join(*h.here,
                   {.name = "here", .peers = std::vector<std::string>{}, .listen = "127.0.0.1:0"},
                   kPatience)
            .value();
    h.other_node =
        Node::join(*h.there,
                   {.name = "there", .peers = std::vector<std::string>{h.node->address()}},
                   kPatience)
            .value();
    h.publisher = Publisher::declare(*h.node, "count").value();
    h.subscriber = Subscriber::declare(*h.other_node, "count").value();
    h.idle_subscriber = Subscriber::declare(*h.other_node, "nothing").value();
    h.called_subscriber =
        Subscriber::declare(*h.other_node, "count", {.on_sample = [](const Sample&) {}}).value();
    h.sample_completion.emplace(h.idle_subscriber->recv_async());
    ASSERT_TRUE(succeeds(h.publisher->wait_for_subscribers(2, kPatience)));
    ASSERT_TRUE(succeeds(h.publisher->publish(patterned(1, 100'000))));
    h.sample = h.subscriber->recv(kPatience).value();
    h.responder = Responder::declare(*h.node, "ask", [](const Request&) -> Result<TensorDict> {
                    return numbered(2);
                  }).value();
  }
  void make_group() {
    const std::string address = fresh_group_address();
    std::array<std::thread, 2> members;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      members[rank] = std::thread([&, rank] {
        all->groups[rank] = Group::join(rank == 0 ? *all->here : *all->there,
                                        Rendezvous::at(address, GroupRank{rank}, 2), kPatience)
                                .value();
      });
    }
    for (std::thread& member : members) member.join();
    const std::array ranks{GroupRank{0}};
    alone_ = all->groups[0]->subgroup(ranks, kPatience).value();
    all->barrier_completion.emplace(alone_->barrier_async());
  }

  /// Keeps threads busy with everything when the process forks.
  void use() {
    Handles& h = *all;
    repeat([this](std::uint64_t n) {
      EXPECT_TRUE(succeeds(all->busy->send(patterned(n, 1 + (n * 7919) % 1'000'000), kPatience)));
      EXPECT_TRUE(succeeds(all->other_end->recv(kPatience)));
      EXPECT_TRUE(succeeds(asking_->send(numbered(1), kPatience)));
      EXPECT_TRUE(succeeds(asking_->recv(kPatience)));
    });
    repeat([&h](std::uint64_t n) {
      EXPECT_TRUE(succeeds(h.publisher->publish(patterned(n, 1 + (n * 7919) % 100'000))));
      (void)h.subscriber->recv(0s);
    });
    repeat([&h](std::uint64_t) {
      EXPECT_TRUE(succeeds(h.other_node->call("ask", numbered(1), kPatience)));
    });
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      threads_.emplace_back([this, &group = *h.groups[rank]] {
        Tensor end = Tensor::of<float>({1}, {0});
        while (end.item<float>({0}) == 0) {  // both know it after the same operation
          end = Tensor::of<float>({1}, {over_ ? 1.0F : 0.0F});
          ASSERT_TRUE(succeeds(group.all_reduce(end, ReduceOp::max, kPatience)));
        }
      });
    }
  }
  void repeat(std::function<void(std::uint64_t)> work) {
    threads_.emplace_back([this, work = std::move(work)] {
      for (std::uint64_t n = 0; !over_ && !HasFailure(); ++n) work(n);
    });
  }

  std::optional<Pipe> asking_;
  std::optional<Group> alone_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};
TENDON_ON_BOTH_TRANSPORTS(ForkedHandles);

constexpr int kForks = 10;

TEST_P(ForkedHandles, AreDropped) {
  for (const Row& row : rows()) {
    for (int i = 0; i < kForks; ++i) {
      const int status = run_in_child([&] {
        run_own_threads();
        row.drop();
        return 0;
      });
      ASSERT_TRUE(exited_with(status, 0)) << row.name << ", fork " << i << ": status " << status;
    }
  }
}

TEST_P(ForkedHandles, AnswerAtOnceAndAreClosed) {
  for (const Row& row : rows()) {
    for (int i = 0; i < kForks; ++i) {
      const int status = run_in_child([&] {
        run_own_threads();
        if (!row.call()) return 1;
        row.drop();
        return 0;
      });
      ASSERT_TRUE(exited_with(status, 0)) << row.name << ", fork " << i << ": status " << status;
    }
  }
}

TEST_P(ForkedHandles, GoInEachOrder) {
  for (int i = 0; i < kForks; ++i) {
    const int status = run_in_child([&] {
      run_own_threads();
      std::vector<Row> ordered = rows();
      if (i % 2 != 0) std::reverse(ordered.begin(), ordered.end());
      for (const Row& row : ordered) row.drop();
      return 0;
    });
    ASSERT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
}

TEST_P(ForkedHandles, AreKeptUntilTheChildExits) {
  for (int i = 0; i < kForks; ++i) {
    const int status = run_in_child([] {
      run_own_threads();
      std::exit(7);
      return 0;
    });
    ASSERT_TRUE(exited_with(status, 7)) << "fork " << i << ": status " << status;
  }
}

// The program that a child executes has nothing of Tendon.
TEST_P(ForkedHandles, LeaveNoDescriptorOverAnExec) {
  constexpr const char* kLook =
      "for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -gt 2 ] && readlink $fd; done |"
      " grep -E 'memfd|socket|anon_inode' && exit 1; exit 0";
  for (int i = 0; i < kForks; ++i) {
    const int status = run_in_child([] {
      execl("/bin/sh", "sh", "-c", kLook, static_cast<char*>(nullptr));
      return 2;
    });
    ASSERT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
}

}  // namespace
}  // namespace tendon::test
