// SPDX-License-Identifier: Apache-2.0
// A program of README.md: listens, and receives each batch that a loader sends. Start it first,
// then loader.cpp or python/loader.py in another terminal.
#include <iostream>
#include <tendon/tendon.hpp>
using namespace std::chrono_literals;

int main() {
  auto context = tendon::Context::create().value();
  auto listener = tendon::Listener::bind(context, "127.0.0.1:7000").value();
  auto pipe = listener.accept(60s).value();
  for (auto& batch : pipe.each(60s)) std::cout << batch.value()["x"] << "\n";
}
