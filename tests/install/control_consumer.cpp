// SPDX-License-Identifier: Apache-2.0
// The same as consumer.cpp, of the control plane.
#include <iostream>
#include <tendon/control/controller.hpp>
#include <tendon/core/version.hpp>

int main() {
  using namespace std::chrono_literals;
  tendon::Context context = tendon::Context::create().value();
  const auto layout = tendon::ParallelLayout::make({}).value();
  auto controller = tendon::Controller::bind(context, layout, "127.0.0.1:0").value();
  const auto failed = controller.wait_for_workers(1ms);
  std::cout << "tendon " << tendon::kVersion << ": planted " << failed.error().detail << "\n";
}
