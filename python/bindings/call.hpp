// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "node.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Reply; the tensors are in the form that `as_=` asked for.
struct ReplyHandle {
  std::string node;
  nb::object tensors;
};

/// The state of a Python CallAllReplies.
struct CallAllHandle {
  nb::list replies;
  nb::list unanswered;
};

inline constexpr const char* kCallDoc =
    "Asks the responders of a key, and returns the first answer: a Reply.\n\n"
    "data: as for Publisher.publish, but no raw bytes; None: an empty request.\n"
    "timeout: seconds; it also waits for a responder to be announced.\n"
    "mode: 'view_or_copy', or 'copy': the arrays of the answer may be written.\n"
    "as_: what the tensors of the answer are: torch (the module), tensordict.TensorDict,\n"
    "or dict. device: where they are to be: 'cpu', or torch.device('cpu').\n\n"
    "The other requests are cancelled, and the error of one responder counts only\n"
    "when none answers: it names the node. Raises Unreachable without a responder,\n"
    "Timeout, PeerLost, ServerBusy, HandlerFailed. Ctrl-C cancels the request.";
inline constexpr const char* kCallAllDoc =
    "Asks the responders of a key, and returns when each has answered or failed, or\n"
    "the timeout has passed: a CallAllReplies.\n\n"
    "timeout: seconds; None: for ever; left out: as the Context says. The other\n"
    "arguments as for call(). Raises Unreachable without a responder.";

/// `Node.call`, `Node.call_all`.
[[nodiscard]] ReplyHandle call(const NodeHandle& self, const std::string& key, nb::object data,
                               nb::object timeout, const std::string& mode, nb::object as,
                               nb::object device);
[[nodiscard]] CallAllHandle call_all(const NodeHandle& self, const std::string& key,
                                     nb::object data, nb::object timeout, const std::string& mode,
                                     nb::object as, nb::object device);

}  // namespace tendon::python
