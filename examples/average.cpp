// SPDX-License-Identifier: Apache-2.0
// The program of docs/cpp.md about groups: processes that average their gradients; one of them
// dies, the others continue. A launcher starts it:
//
//   tendon launch -n 3 -- average
//
// Prints:
// [rank 0] 3 members, mean f32 [2] {1, 20}
// [rank 0] peer_lost
// [rank 0] 2 members, mean f32 [2] {0.5, 20}
#include <cstdlib>
#include <iostream>
#include <tendon/group/group.hpp>
#include <tendon/tendon.hpp>

using namespace tendon;
using namespace std::chrono_literals;

int main() {
  Context context = Context::create().value();
  Result<Group> group = Group::join(context, Rendezvous::from_environment(), 30s);
  if (!group) {
    std::cerr << group.error().message() << "\n";
    return 1;
  }
  const std::uint32_t rank = group->rank().value;

  for (int step = 0; step < 3; ++step) {
    const Tensor gradient = Tensor::of<float>({2}, {static_cast<float>(rank), 20});
    Result<void> done = group->all_reduce(gradient, ReduceOp::avg, 30s);
    if (!done) {
      if (rank == 0) std::cout << to_string(done.error().code) << "\n";
      group->shrink(30s).value();  // the next epoch: all that are left call it
      continue;                    // what `gradient` holds is unspecified
    }
    if (rank == 0) std::cout << group->size() << " members, mean " << gradient << "\n";
    if (rank == 2) std::_Exit(0);  // a member dies
  }
}
