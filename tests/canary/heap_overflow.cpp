// SPDX-License-Identifier: Apache-2.0
#include <vector>

int main(int argc, char**) {
  const std::vector<int> one(1);
  return one.data()[argc];
}
