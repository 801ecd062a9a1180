// SPDX-License-Identifier: Apache-2.0
// A consumer and a producer that know each other only by address. In two terminals:
//
//   two_processes consume 127.0.0.1:7000
//   two_processes produce 127.0.0.1:7000
//
// Without arguments it listens on a free port and starts the producer itself.
//
// Prints:
// batch 0: step 0, image sum 0
// batch 1: step 1, image sum 16384
// batch 2: step 2, image sum 32768
// end of stream after 3 batches, by shm: same host, proved by a shared mapping
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>
#include <tendon/tendon.hpp>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

void produce(std::string_view address) {
  Context context = Context::create({.name = "producer"}).value();
  // The consumer may start later: it dials until the deadline.
  Pipe pipe = Pipe::connect(context, address, 10s).value();

  const auto schema = Schema::make({{"image", DType::u8, {128, 128}}}).value();
  for (std::uint8_t step = 0; step < 3; ++step) {
    Loan batch = pipe.loan(schema, 1s).value();  // memory that the consumer can read
    std::ranges::fill(batch["image"].span<std::uint8_t>(), step);
    batch.set("step", step);
    pipe.send(std::move(batch), 1s).value();
  }
  pipe.close(5s).value();
}

int consume(Listener& listener) {
  Pipe pipe = listener.accept(10s).value();
  int count = 0;
  for (Result<TensorDict>& batch : pipe.each(10s)) {
    const auto pixels = batch.value()["image"].span<const std::uint8_t>();
    std::cout << "batch " << count++ << ": step " << batch->value("step").as_i64() << ", image sum "
              << std::accumulate(pixels.begin(), pixels.end(), 0) << "\n";
  }
  std::cout << "end of stream after " << count << " batches, by " << pipe.path() << "\n";
  return count == 3 ? 0 : 1;
}

pid_t start_producer(std::string address) {
  std::string program = "/proc/self/exe";
  std::string role = "produce";
  char* const arguments[] = {program.data(), role.data(), address.data(), nullptr};
  pid_t child = -1;
  const int failure = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (failure != 0) throw Exception(system_error("two_processes", "posix_spawn", failure));
  return child;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view role = argc > 1 ? argv[1] : "";
    const std::string_view address = argc > 2 ? argv[2] : "127.0.0.1:0";
    if (role == "produce") {
      produce(address);
      return 0;
    }
    Context context = Context::create({.name = "consumer"}).value();
    Listener listener = Listener::bind(context, address).value();
    if (role == "consume") return consume(listener);
    const pid_t producer = start_producer(listener.address());
    const int result = consume(listener);
    int status = 0;
    waitpid(producer, &status, 0);
    return result != 0 ? result : WEXITSTATUS(status);
  } catch (const Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return error_info(failure.code()).exit_code;
  }
}
