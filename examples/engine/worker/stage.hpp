// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "worker/block_tables.hpp"
#include "worker/llama_config.hpp"

namespace engine {

/// The rows of one sequence in a step, and the places of its keys.
struct Piece {
  enum class Logits : std::uint8_t { no, of_last_row };

  std::uint32_t first = 0;    ///< position of the first row
  std::uint32_t count = 0;    ///< of rows
  std::vector<SlotRun> runs;  ///< the slots of the tokens [0, end())
  Logits logits = Logits::no;

  [[nodiscard]] std::uint32_t end() const { return first + count; }
};

/// The last stage of a decoder: some layers, the last norm and the head.
///
/// Owns:    the keys and values of its layers; shares the mapped weights.
/// Threads: one.
/// Errors:  open(): faults of the file; resource_exhausted.
/// Blocks:  never, except for the disk at the first touch of a page.
/// Cost:    one thread computes, in the element type of the weights.
class Stage {
 public:
  /// `blocks`: the blocks of keys and values that there is room for. Errors: unsupported_dtype for
  /// weights other than f32 and f64, schema_mismatch, corrupt_data.
  [[nodiscard]] static tendon::Result<std::unique_ptr<Stage>> open(tendon::SafetensorsFile file,
                                                                   const LlamaConfig& config,
                                                                   tendon::LayerRange layers,
                                                                   std::uint32_t blocks);
  virtual ~Stage() = default;
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  [[nodiscard]] virtual tendon::DType dtype() const = 0;
  /// `rows` [T, width], of dtype(), is the output of the stage before for the pieces, one below the
  /// other. Returns the logits of the pieces that need them, in order, one for each token.
  [[nodiscard]] virtual std::vector<std::vector<double>> forward(const tendon::Tensor& rows,
                                                                 std::span<const Piece> pieces) = 0;
};

}  // namespace engine
