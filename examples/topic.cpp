// SPDX-License-Identifier: Apache-2.0
// The program of docs/fabric.md: two nodes, one of which publishes while the other one subscribes.
// In two terminals:
//
//   topic see                      prints its address: node vision listens on 127.0.0.1:40231
//   topic act 127.0.0.1:40231      connects to it, and receives
//
// Without an argument both are in one process.
//
// Prints:
// motor got object 1 of vision
// motor got object 2 of vision
// motor got object 3 of vision
#include <iostream>
#include <string>
#include <string_view>
#include <tendon/tendon.hpp>
#include <vector>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

Result<void> see(const Node& node, Publisher& objects) {
  if (!node.address().empty())
    std::cerr << "node " << node.name() << " listens on " << node.address() << "\n";
  TENDON_CHECK(objects.wait_for_subscribers(1, 60s));
  for (std::int64_t number = 1; number <= 3; ++number) {
    TensorDict sample;
    sample.set("number", Tensor::of<std::int64_t>({}, {number}));
    TENDON_CHECK(objects.publish(sample));
  }
  return objects.close(10s);  // waits until the subscriber was shown all of it
}

Result<void> act(Subscriber& seen) {
  for (int count = 0; count < 3; ++count) {
    TENDON_TRY(sample, seen.recv(60s));
    for (const tendon::Gap& gap : sample.gaps) std::cout << gap << "\n";
    std::cout << "motor got object " << (*sample.tensors)["number"].item<std::int64_t>() << " of "
              << sample.publisher << "\n";
  }
  return {};
}

int report(const Result<void>& done) {
  if (done) return 0;
  std::cerr << done.error().message() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "both";
  Context context = Context::create({.name = std::string(role)}).value();
  if (role == "act") {
    const std::vector<std::string> peers{argc > 2 ? argv[2] : "127.0.0.1:7450"};
    Node motor =
        Node::join(context, {.domain = "brain", .name = "motor", .peers = peers}, 5s).value();
    Subscriber seen = Subscriber::declare(motor, "vision/*").value();
    return report(act(seen));
  }
  const std::vector<std::string> nobody;
  Node vision = Node::join(context,
                           {.domain = "brain",
                            .name = "vision",
                            .peers = nobody,
                            .listen = role == "see" ? "127.0.0.1:0" : ""},
                           5s)
                    .value();
  Publisher objects = Publisher::declare(vision, "vision/objects", {.qos = {keep_last(3)}}).value();
  if (role == "see") return report(see(vision, objects));
  Subscriber seen = Subscriber::declare(vision, "vision/*").value();
  if (const int failed = report(see(vision, objects))) return failed;
  return report(act(seen));
}
