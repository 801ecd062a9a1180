// SPDX-License-Identifier: Apache-2.0
// The C++ end of tests/python/test_mixed.py, test_fabric.py and test_brain.py.
//
// python_peer TRANSPORT                          listens, prints the address, returns each message
// python_peer TRANSPORT ADDRESS COUNT            connects, and sends COUNT batches as a loan each
// python_peer TRANSPORT publish ADDRESS COUNT    a node: publishes COUNT samples as a loan each
// python_peer TRANSPORT subscribe ADDRESS COUNT  a node: prints COUNT samples
// python_peer spikes                             reads lines of hexadecimal digits, messages of
//                                                spikes of examples/brain: prints each message
//                                                decoded, and encoded again
#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tendon/tendon.hpp>
#include <vector>

#include "../../examples/brain/spikes.hpp"

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
      Publisher::declare(node, "c++/frames", {.qos = {.overflow = Overflow::block}}).value();
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

std::vector<std::byte> from_hex(const std::string& digits) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(at, 2), nullptr, 16)));
  return bytes;
}

void decode_spikes() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto spikes = brain::decode(from_hex(line));
    if (!spikes) {
      std::cout << to_string(spikes.error().code) << "\n";
      continue;
    }
    std::cout << spikes->neurons;
    for (const std::uint32_t neuron : spikes->fired) std::cout << ' ' << neuron;
    std::cout << std::hex << std::setfill('0') << " = ";
    for (const std::byte byte : brain::encode(*spikes))
      std::cout << std::setw(2) << static_cast<int>(byte);
    std::cout << std::dec << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  if (std::string_view(arguments[1]) == "spikes") {
    decode_spikes();
    return 0;
  }
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
