// SPDX-License-Identifier: Apache-2.0
// `tendon call`: asks the responders of a key.
#include <fmt/format.h>

#include <string>
#include <tendon/tensor/safetensors.hpp>
#include <utility>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/sample_text.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

Value::Map document_of(const Reply& reply) {
  Value::Map document{{"node", reply.node}};
  for (auto& entry : tensors_document(reply.tensors)) document.push_back(std::move(entry));
  return document;
}

void print(const CallOptions& options, const Reply& reply) {
  if (options.format == Format::json) return print_json(document_of(reply));
  print_line(fmt::format("{}  {}", shown(options.key), shown(reply.node)) +
             describe_tensors(reply.tensors));
}

Result<void> call_first(Node& node, const CallOptions& options, const TensorDict& request) {
  TENDON_TRY(reply, node.call(options.key, request, options.patience()));
  if (!options.output_file.empty())
    TENDON_CHECK(save_safetensors(options.output_file, reply.tensors));
  print(options, reply);
  return {};
}

// Successful answers are the data; without any the command fails with the first error among the
// others.
Result<void> call_all(Node& node, const CallOptions& options, const TensorDict& request) {
  TENDON_TRY(came, node.call_all(options.key, request, options.patience()));
  for (const Reply& reply : came.replies) print(options, reply);
  for (const Unanswered& one : came.unanswered) {
    say(fmt::format("tendon: no answer of {}: {}: {}", shown(one.node), to_string(one.error.code),
                    shown(one.error.detail)));
  }
  if (came.replies.empty()) return came.unanswered.front().error;
  return {};
}

Result<void> call(const CallOptions& options, Interrupt& interrupt) {
  TensorDict request;
  if (!options.file.empty()) {
    TENDON_TRY(loaded, load_safetensors(options.file));
    request = std::move(loaded);
  }
  TENDON_TRY(fabric, join_fabric(options, "call"));
  const Interrupt::Guard end_on_signal(interrupt, [&] { fabric.node.close(); });
  auto done = options.until == CallUntil::all_answers ? call_all(fabric.node, options, request)
                                                      : call_first(fabric.node, options, request);
  if (interrupt.requested()) return interrupt.error("cli.call");
  return done;
}

}  // namespace

int run_call(const CallOptions& options) {
  return run_until_signal(options.format,
                          [&](Interrupt& interrupt) { return call(options, interrupt); });
}

}  // namespace tendon::cli
