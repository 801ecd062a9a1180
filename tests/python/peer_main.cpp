// SPDX-License-Identifier: Apache-2.0
// The C++ end of tests/python/test_mixed.py and test_fabric.py.
//
// python_peer TRANSPORT                          listens, says where, sends back what it receives
// python_peer TRANSPORT ADDRESS COUNT            connects, and sends COUNT batches as a loan each
// python_peer TRANSPORT publish ADDRESS COUNT    a node: publishes COUNT samples as a loan each
// python_peer TRANSPORT subscribe ADDRESS COUNT  a node: prints what it says of COUNT samples
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tendon/tendon.hpp>
#include <vector>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 60s;

void echo(Context& context) {
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  std::cout << listener.address() << std::endl;
  Pipe pipe = listener.accept(kPatience).value();
  for (Result<TensorDict>& batch : pipe.each(kPatience)) {
    TensorDict answer = batch.value();
    answer.set("from", "c++");
    pipe.send(answer, kPatience).value();
  }
  pipe.close(kPatience).value();
}

std::shared_ptr<const Schema> schema() {
  return Schema::make({{"x", DType::f32, {64, 1024}}, {"in/y", DType::bf16, {3}}}).value();
}

void fill(Loan& loan, int i) {
  std::ranges::fill(loan["x"].span<float>(), static_cast<float>(i));
  std::ranges::fill(loan["in/y"].mutable_bytes(), std::byte{0x3f});
  loan.set("step", i);
}

void produce(Context& context, std::string_view address, int count) {
  Pipe pipe = Pipe::connect(context, address, kPatience).value();
  for (int i = 0; i < count; ++i) {
    Loan loan = pipe.loan(schema(), kPatience).value();
    fill(loan, i);
    pipe.send(std::move(loan), kPatience).value();
  }
  pipe.close(kPatience).value();
}

Node join(Context& context, const std::string& address) {
  const std::vector<std::string> peers{address};
  return Node::join(context, {.domain = "brain", .name = "c++", .peers = peers}, kPatience).value();
}

void publish(Context& context, const std::string& address, int count) {
  Node node = join(context, address);
  Publisher publisher =
      Publisher::declare(node, "c++/frames", {.overflow = Overflow::block}).value();
  publisher.wait_for_subscribers(1, kPatience).value();
  for (int i = 0; i < count; ++i) {
    Loan loan = publisher.loan(schema()).value();
    fill(loan, i);
    (void)publisher.publish(std::move(loan), kPatience).value();
  }
  publisher.close(kPatience).value();
}

void subscribe(Context& context, const std::string& address, int count) {
  Node node = join(context, address);
  Subscriber subscriber = Subscriber::declare(node, "python/*").value();
  for (int i = 0; i < count; ++i) {
    const Sample sample = subscriber.recv(kPatience).value();
    const TensorDict& tensors = sample.tensors.value();
    std::cout << sample.sequence << " of " << sample.publisher << " on " << sample.key << ": step "
              << tensors.value("step").as_i64() << ", x " << tensors["x"].span<const float>().back()
              << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  ContextOptions options;
  options.name = "c++";
  options.transport = std::string_view(arguments[1]) == "shm" ? Transport::shm : Transport::tcp;
  Context context = Context::create(options).value();
  const std::string_view verb = arguments.size() > 2 ? arguments[2] : "echo";
  if (verb == "echo")
    echo(context);
  else if (verb == "publish")
    publish(context, arguments[3], std::atoi(arguments[4]));
  else if (verb == "subscribe")
    subscribe(context, arguments[3], std::atoi(arguments[4]));
  else
    produce(context, arguments[2], std::atoi(arguments[3]));
}
