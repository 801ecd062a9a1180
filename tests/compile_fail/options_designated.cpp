// SPDX-License-Identifier: Apache-2.0
// Naming some members of an option struct is how it is used, and gives no warning, because every
// member has a default initialiser. A member without one would show as it does for Careless here.
// expect: missing initializer for member
// expect: missing field
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/server.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/safetensors.hpp>

struct Careless {
  int first = 0;
  int second;
};

tendon::ConnectOptions pipe() { return {.security = {tendon::Profile::plaintext}}; }
tendon::ListenOptions listen() { return {.security = {tendon::Profile::plaintext}}; }
tendon::ServerOptions serve() { return {.max_clients = 2}; }
tendon::MessageOptions message() { return {.tag = 3}; }
tendon::ContextOptions context() { return {.name = "learner"}; }
tendon::SaveOptions save() { return {.header = {}}; }
#ifndef TENDON_MUST_COMPILE
Careless careless() { return {1}; }
#endif
