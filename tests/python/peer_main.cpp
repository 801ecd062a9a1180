// SPDX-License-Identifier: Apache-2.0
// The C++ end of tests/python/test_mixed.py.
//
// python_peer TRANSPORT                  listens, says where, and sends back what it receives
// python_peer TRANSPORT ADDRESS COUNT    connects, and sends COUNT batches as a loan each
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string_view>
#include <tendon/tendon.hpp>

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

void produce(Context& context, std::string_view address, int count) {
  Pipe pipe = Pipe::connect(context, address, kPatience).value();
  const auto schema =
      Schema::make({{"x", DType::f32, {64, 1024}}, {"in/y", DType::bf16, {3}}}).value();
  for (int i = 0; i < count; ++i) {
    Loan loan = pipe.loan(schema, kPatience).value();
    std::ranges::fill(loan["x"].span<float>(), static_cast<float>(i));
    std::ranges::fill(loan["in/y"].mutable_bytes(), std::byte{0x3f});
    loan.set("step", i);
    pipe.send(std::move(loan), kPatience).value();
  }
  pipe.close(kPatience).value();
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  ContextOptions options;
  options.name = "c++";
  options.transport = std::string_view(arguments[1]) == "shm" ? Transport::shm : Transport::tcp;
  Context context = Context::create(options).value();
  if (arguments.size() == 2)
    echo(context);
  else
    produce(context, arguments[2], std::atoi(arguments[3]));
}
