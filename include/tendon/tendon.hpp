// SPDX-License-Identifier: Apache-2.0
// Everything at once, for examples and small programs. Larger ones include what they use.
#pragma once

#include <tendon/core/bytes.hpp>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/member_event.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/version.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/group/group.hpp>
#include <tendon/group/stage.hpp>
#include <tendon/memory/pool.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/pipe/server.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/runtime/gpu_pool.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>
