// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tendon/session/profile.hpp>

#include "tensor/text.hpp"

namespace tendon::v0 {

std::string_view to_string(Profile profile) {
  switch (profile) {
    case Profile::local:
      return "local";
    case Profile::plaintext:
      return "plaintext";
  }
  return "unknown";
}

Result<Profile> parse_profile(std::string_view text) {
  for (const Profile profile : {Profile::local, Profile::plaintext}) {
    if (text == to_string(profile)) return profile;
  }
  return Error{
      ErrorCode::invalid_argument, "session.profile",
      "profile " + detail::quote_text(text) + " does not exist; legal are local, plaintext"};
}

}  // namespace tendon::v0
