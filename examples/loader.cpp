// SPDX-License-Identifier: Apache-2.0
// A program of README.md: connects to a trainer and sends it a batch. Start trainer.cpp or
// python/trainer.py first, in another terminal.
#include <tendon/tendon.hpp>
using namespace std::chrono_literals;

int main() {
  auto context = tendon::Context::create().value();
  auto pipe = tendon::Pipe::connect(context, "127.0.0.1:7000", 5s).value();
  tendon::TensorDict batch;
  batch.set("x", tendon::Tensor::of<float>({1, 4}, {1, 0, 0, 1}));  // shape, values
  batch.set("y", tendon::Tensor::of<float>({1}, {5}));
  pipe.send(batch, 5s).value();
  pipe.close(5s).value();  // flushed, then the end of the stream
}
