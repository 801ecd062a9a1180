// SPDX-License-Identifier: Apache-2.0
#include "group/scripts/script.hpp"

#include "group/scripts/script_builder.hpp"

namespace tendon::v0::detail {

Script barrier_script(Member member) {
  ScriptBuilder script{Cut{}};
  for (std::uint32_t distance = 1; distance < member.count; distance *= 2) {
    script.send_signal(after(member, distance));
    script.receive_signal(before(member, distance));
  }
  return script.finish();
}

}  // namespace tendon::v0::detail
