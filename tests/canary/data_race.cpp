// SPDX-License-Identifier: Apache-2.0
#include <thread>

int shared = 0;

int main() {
  std::jthread writer([] { shared = 1; });
  shared = 2;
}
