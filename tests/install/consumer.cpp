// SPDX-License-Identifier: Apache-2.0
// What a user of an installed Tendon writes first; calls into the library, so that it must link.
#include <iostream>
#include <tendon/core/result.hpp>
#include <tendon/core/version.hpp>

int main() {
  const tendon::Result<int> failed =
      tendon::Error{tendon::ErrorCode::timeout, "consumer", "planted"};
  try {
    return *&failed.value();
  } catch (const tendon::Exception& exception) {
    std::cout << "tendon " << tendon::kVersion << ": " << exception.what() << "\n";
  }
}
