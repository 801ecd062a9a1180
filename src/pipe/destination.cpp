// SPDX-License-Identifier: Apache-2.0
#include "pipe/destination.hpp"

#include <tendon/tensor/packed.hpp>
#include <utility>

#include "tensor/destination_check.hpp"
#include "tensor/packed_copy.hpp"

namespace tendon::v0::detail {

bool Destination::claim(const TensorDict& receive, const PackedLayout& layout,
                        std::vector<MutableBytes>& pieces) {
  if (state_ != State::none) return false;
  for (std::size_t i = 0; i < receive.leaf_count(); ++i)
    if (!leaf_view(receive, i).contiguous) return false;
  std::uint64_t end = 0;
  for (const std::uint32_t i : layout.order) {
    const LeafView leaf = leaf_view(receive, i);
    if (leaf.size_bytes == 0) continue;
    if (layout.offsets[i] != end)
      pieces.push_back(MutableBytes(gap_).first(layout.offsets[i] - end));
    // check_destination() has checked that the leaf may be written.
    pieces.push_back({const_cast<std::byte*>(leaf.data), leaf.size_bytes});
    end = layout.offsets[i] + leaf.size_bytes;
  }
  if (layout.total_bytes != end)
    pieces.push_back(MutableBytes(gap_).first(layout.total_bytes - end));
  state_ = State::writing;
  claimer_ = &receive;
  return true;
}

void Destination::complete() noexcept {
  if (state_ == State::writing) state_ = State::written;
  if (state_ == State::kept_writing) state_ = State::kept;
}

void Destination::abort() noexcept {
  if (is_written_to()) clear();
}

void Destination::keep() {
  if (state_ != State::writing && state_ != State::written) return;
  kept_ = *claimer_;
  claimer_ = nullptr;
  state_ = state_ == State::writing ? State::kept_writing : State::kept;
}

std::optional<TensorDict> Destination::take(const TensorDict* receive) {
  if (is_written_to()) return std::nullopt;
  std::optional<TensorDict> lies_in = std::exchange(kept_, std::nullopt);
  if (state_ == State::written && claimer_ != receive) lies_in = *claimer_;
  clear();
  return lies_in;
}

bool Destination::drop() noexcept {
  const bool was_written_to = is_written_to();
  clear();
  return was_written_to;
}

void Destination::move_away(Layout layout, MutableBytes copy) {
  pack_piece(state_ == State::kept ? *kept_ : *claimer_, layout, 0, copy);
  clear();
}

void Destination::clear() noexcept {
  state_ = State::none;
  claimer_ = nullptr;
  kept_.reset();
}

Result<TensorDict> message_in(const TensorDict& filled, std::shared_ptr<const Value> values) {
  const std::shared_ptr<const Schema>& schema = filled.schema();
  TENDON_TRY(fresh, Storage::allocate(schema->layout(Layout::aligned).total_bytes));
  pack_piece(filled, Layout::aligned, 0, {fresh.data(), fresh.size_bytes()});
  return make_packed(schema, Layout::aligned, std::move(fresh), std::move(values));
}

}  // namespace tendon::v0::detail
