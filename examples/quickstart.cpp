// SPDX-License-Identifier: Apache-2.0
// The first program of docs/cpp.md: both ends of a pipe in one process.
//
// Prints:
// TensorDict {
//   observation: f32 [2, 2] {1, 2, 3, 4}
//   info: TensorDict {
//     step: 7
//   }
// }
// shm: same host, proved by a shared mapping
#include <iostream>
#include <tendon/tendon.hpp>
#include <thread>

using namespace tendon;
using namespace std::chrono_literals;

int main() {
  Context context = Context::create().value();                         // memory, progress, identity
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();  // loopback, any free port

  std::jthread producer([&] {
    Pipe pipe = Pipe::connect(context, listener.address(), 5s).value();
    TensorDict batch;
    batch.set("observation", Tensor::of<float>({2, 2}, {1, 2, 3, 4}));  // shape, values
    batch.set("info/step", 7);                                          // other data travels too
    pipe.send(batch, 1s).value();
    pipe.close(1s).value();  // flushed, then the end of the stream
  });

  Pipe pipe = listener.accept(5s).value();
  TensorDict received = pipe.recv(5s).value();
  std::cout << received << "\n" << pipe.path() << "\n";
}
