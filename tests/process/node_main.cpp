// SPDX-License-Identifier: Apache-2.0
// A node in another process. It obeys the lines of its standard input, and answers each with one
// line. Its arguments: a name, a transport (shm, tcp, auto), its lease [ms], the addresses of its
// peers. "router=ADDR" and "listen=ADDR" among them make it a node that other hosts find,
// "plaintext" is its profile, "publish_bytes=N" that of its Context. "star" instead of peers: it
// finds the nodes of this host.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"

namespace tendon::test {
namespace {

using std::chrono::milliseconds;

std::string told(const Error& error) {
  std::string detail = error.detail;
  for (char& c : detail)
    if (c == '\n') c = '|';
  return "error " + std::string(to_string(error.code)) + " " + detail;
}

std::uint64_t publish_bytes_of(const std::vector<std::string>& words) {
  constexpr std::string_view kOption = "publish_bytes=";
  for (const std::string& word : words)
    if (word.starts_with(kOption)) return std::stoull(word.substr(kOption.size()));
  return 0;
}

NodeOptions options_of(const std::string& name, const std::vector<std::string>& words) {
  NodeOptions options{.domain = "brain", .name = name, .peers = std::vector<std::string>{}};
  for (const std::string& word : words) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("router=")) {
      options.routers.push_back(value);
      options.security.profile = Profile::plaintext;
    } else if (word.starts_with("listen=")) {
      options.listen = value;
    } else if (word == "plaintext") {
      options.security.profile = Profile::plaintext;
    } else if (word == "star") {
      options.peers.reset();
    } else if (!word.starts_with("publish_bytes=")) {
      options.peers->push_back(word);
    }
  }
  return options;
}

class Program {
 public:
  Program(const std::string& name, const std::string& transport, int lease_ms,
          const std::vector<std::string>& words)
      : context_(Context::create({.name = name,
                                  .transport = parse_word<Transport>(transport).value(),
                                  .lease = milliseconds(lease_ms),
                                  .publish_bytes = publish_bytes_of(words)})
                     .value()),
        node_profile_(options_of(name, words).security.profile),
        node_(Node::join(context_, options_of(name, words), milliseconds(20'000)).value()) {
    node_.on_event([this](const FabricEvent& event) {
      if (event.kind != FabricEventKind::runtime_directory_changed) return;
      const std::lock_guard lock(mutex_);
      moves_.push_back(event.old_directory + " > " + event.new_directory);
      moved_.notify_all();
    });
  }

  std::string act(std::istringstream& words) {
    std::string verb;
    std::string key;
    words >> verb >> key;
    if (verb == "subscribe") {
      std::string name;
      words >> name;
      subscribers_.insert_or_assign(name, Subscriber::declare(node_, key).value());
      return "ok";
    }
    if (verb == "publisher") {
      std::uint32_t history = 1;
      words >> history;
      publisher_ = Publisher::declare(node_, key, {.qos = {keep_last(history)}}).value();
      return "ok";
    }
    if (verb == "publish") {  // `publish SIZE COUNT [PERIOD_US]`
      int count = 1;
      std::int64_t period_us = 0;
      words >> count >> period_us;
      auto next = std::chrono::steady_clock::now();
      for (int n = 0; n < count; ++n) {
        next += std::chrono::microseconds(period_us);
        while (std::chrono::steady_clock::now() < next) std::this_thread::yield();
        const auto shown = publisher_->publish(patterned(++published_, std::stoull(key)));
        if (!shown) return told(shown.error());
      }
      return "ok";
    }
    if (verb == "responder") {  // `responder KEY echo|hold`: `hold` waits until its caller ends
      std::string how;
      words >> how;
      responder_ = Responder::declare(node_, key, [how, this](const Request& request) {
                     if (how == "hold") hold(request);
                     return Result<TensorDict>(request.tensors());
                   }).value();
      return "ok";
    }
    if (verb == "stats") {  // the responder's "ok RUNNING CANCELLED"
      const ResponderStats stats = responder_->stats();
      return "ok " + std::to_string(stats.running) + ' ' + std::to_string(stats.cancelled);
    }
    if (verb == "call") {
      const auto reply = node_.call(key, numbered(7), milliseconds(20'000));
      return reply ? "ok " + std::to_string(number_of(reply->tensors)) : told(reply.error());
    }
    if (verb == "peer") {  // `peer ADDRESS`: a second node of this Context has that peer
      auto joined = Node::join(context_,
                               {.domain = "brain",
                                .name = "second",
                                .peers = std::vector<std::string>{key},
                                .security = {node_profile_}},
                               milliseconds(20'000));
      if (!joined) return told(joined.error());
      second_ = *std::move(joined);
      return "ok";
    }
    if (verb == "moved") {  // the next change of its runtime directory: "ok OLD > NEW"
      std::unique_lock lock(mutex_);
      if (!moved_.wait_for(lock, milliseconds(20'000), [&] { return !moves_.empty(); }))
        return "error timeout";
      std::string move = "ok " + moves_.front();
      moves_.pop_front();
      return move;
    }
    if (verb == "address") return "ok " + node_.address();
    if (verb == "subscribers") return "ok " + std::to_string(publisher_->stats().subscribers);
    if (verb == "path") {  // to a node: "ok KIND: REASON"
      const auto stats = node_.peer_stats(key);
      return stats ? "ok " + stats->path.to_string() : told(stats.error());
    }
    if (verb == "wait") {  // for this number of subscribers
      const auto there = publisher_->wait_for_subscribers(std::stoull(key), milliseconds(20'000));
      return there ? "ok" : told(there.error());
    }
    // `recv NAME SIZE`: "ok SEQUENCE [FIRST LAST REASON]...".
    if (verb == "recv") {
      std::uint64_t size = 0;
      words >> size;
      auto sample = subscribers_.at(key).recv(milliseconds(20'000));
      if (!sample) return told(sample.error());
      if (const auto right = is_patterned(*sample->tensors, sample->sequence, size); !right)
        return std::string("error wrong ") + right.message();
      std::string text = "ok " + std::to_string(sample->sequence);
      for (const Gap& gap : sample->gaps) {
        text += ' ' + std::to_string(gap.first) + ' ' + std::to_string(gap.last) + ' ' +
                std::string(to_string(gap.reason));
      }
      return text;
    }
    return "error unknown " + verb;
  }

 private:
  void hold(const Request& request) {
    std::unique_lock lock(mutex_);
    std::condition_variable_any never;
    (void)never.wait(lock, request.stop_token(), [] { return false; });
  }

  std::mutex mutex_;
  std::condition_variable moved_;
  std::deque<std::string> moves_;
  Context context_;
  const Profile node_profile_;
  Node node_;
  std::optional<Node> second_;
  std::optional<Publisher> publisher_;
  std::optional<Responder> responder_;
  std::map<std::string, Subscriber> subscribers_;
  std::uint64_t published_ = 0;
};

}  // namespace
}  // namespace tendon::test

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  tendon::test::Program program(argv[1], argv[2], std::stoi(argv[3]), {argv + 4, argv + argc});
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::cout << program.act(words) << std::endl;
  }
}
