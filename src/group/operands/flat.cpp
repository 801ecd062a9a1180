// SPDX-License-Identifier: Apache-2.0
#include "group/operands/flat.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "group/operands/share.hpp"
#include "tensor/copy.hpp"
#include "tensor/destination_check.hpp"

namespace tendon::v0::detail {
namespace {

// FNV-1a, a word at a time: members compare, nobody trusts it.
void mix(std::uint32_t& hash, std::uint64_t word) {
  hash = (hash ^ static_cast<std::uint32_t>(word)) * 16777619u;
  hash = (hash ^ static_cast<std::uint32_t>(word >> 32)) * 16777619u;
}

// The place of a tensor, from first to last byte.
using Extent = std::pair<const std::byte*, const std::byte*>;
std::vector<Extent> extents_of(std::span<const Flat> parts) {
  std::vector<Extent> extents;
  for (const Flat& part : parts)
    for (const Flat::Run& run : part.runs())
      extents.emplace_back(run.data, run.data + run.size_bytes);
  std::sort(extents.begin(), extents.end());
  return extents;
}

// From the first byte of all to the last one; {nullptr, nullptr} for none.
Extent whole_extent_of(std::span<const Flat> parts) {
  Extent whole{};
  for (const Flat& part : parts) {
    for (const Flat::Run& run : part.runs()) {
      whole.first =
          whole.first == nullptr ? run.data : std::min<const std::byte*>(whole.first, run.data);
      whole.second = std::max<const std::byte*>(whole.second, run.data + run.size_bytes);
    }
  }
  return whole;
}

// Each of these is written separately. If two results shared memory, the one written last would
// win, on some members and with some algorithms.
Result<void> check_distinct(const Tensors& tensors, std::span<const Flat> parts) {
  const std::vector<Extent> extents = extents_of(parts);
  bool is_clear =
      std::none_of(parts.begin(), parts.end(), [](const Flat& part) { return part.is_gappy(); });
  for (std::size_t i = 1; i < extents.size(); ++i)
    is_clear = is_clear && extents[i - 1].second <= extents[i].first;
  if (is_clear) return {};
  // The careful check is that of a TensorDict, here with places of the list for names.
  TensorDict all;
  std::size_t place = 0;
  const auto add = [&](const auto& each) { return all.try_set(std::to_string(place++), each); };
  if (const auto* const one = std::get_if<const Tensor*>(&tensors.what())) {
    TENDON_CHECK(add(**one));
  } else if (const auto* const several = std::get_if<std::span<const Tensor>>(&tensors.what())) {
    for (const Tensor& tensor : *several) TENDON_CHECK(add(tensor));
  } else if (const auto* const dicts = std::get_if<std::span<const TensorDict>>(&tensors.what())) {
    for (const TensorDict& dict : *dicts) TENDON_CHECK(add(dict));
  }
  return check_destination(all);
}

}  // namespace

bool may_overlap(std::span<const Flat> one, std::span<const Flat> other) noexcept {
  const Extent ours = whole_extent_of(one);
  const Extent theirs = whole_extent_of(other);
  return ours.first < theirs.second && theirs.first < ours.second;
}

Result<void> copy_overlapping(std::span<Flat* const> inputs, std::span<const Flat> outputs) {
  // No two outputs share memory, so their ends are in order too.
  const std::vector<Extent> written = extents_of(outputs);
  const auto is_written = [&](const Flat::Run& run) {
    const auto first = std::upper_bound(
        written.begin(), written.end(), run.data,
        [](const std::byte* begin, const Extent& extent) { return begin < extent.second; });
    return first != written.end() && first->first < run.data + run.size_bytes;
  };
  for (Flat* const input : inputs) {
    const auto runs = input->runs();
    if (std::any_of(runs.begin(), runs.end(), is_written)) TENDON_CHECK(input->copy());
  }
  return {};
}

std::uint64_t Flat::tensor_bytes() const noexcept {
  std::uint64_t size = 0;
  for (const Run& run : runs()) size += run.size_bytes;
  return size;
}

std::uint32_t Flat::layout(std::uint64_t offset, std::uint64_t size_bytes) const noexcept {
  struct Stretch {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    DType dtype = DType::u8;
  } last;
  std::uint32_t hash = 0;
  const auto add = [&] {
    if (last.begin == last.end) return;
    mix(hash, static_cast<std::uint64_t>(last.dtype) + 1);
    mix(hash, last.begin);
    mix(hash, last.end);
  };
  visit(offset, size_bytes, [&](std::byte*, std::uint64_t at, std::uint64_t bytes, DType dtype) {
    if (at == last.end && dtype == last.dtype) {
      last.end += bytes;
      return;
    }
    add();
    last = {at, at + bytes, dtype};
  });
  add();
  return hash;
}

void FlatSummary::add(std::string_view name, const Tensor& tensor) {
  if (tensor_count++ == 0) {
    dtype = tensor.dtype();
    shape = tensor.shape();
  }
  size_bytes += tensor.size_bytes();
  if (tensor_count == 1 && name.empty()) return;
  if (first.empty() && tensor_count == 2) first.push_back({{}, dtype, shape});
  if (first.size() < kMostEach)
    first.push_back({std::string(name), tensor.dtype(), tensor.shape()});
}

void FlatSummary::add(FlatSummary&& other) {
  if (other.tensor_count == 0) return;
  if (tensor_count == 0) {
    *this = std::move(other);
    return;
  }
  if (first.empty()) first.push_back({{}, dtype, shape});
  if (other.first.empty()) other.first.push_back({{}, other.dtype, other.shape});
  for (Each& each : other.first)
    if (first.size() < kMostEach) first.push_back(std::move(each));
  tensor_count += other.tensor_count;
  size_bytes += other.size_bytes;
}

std::string to_string(const FlatSummary& summary) {
  const auto told = [](DType dtype, const Shape& shape) {
    return std::string(to_string(dtype)) + " " + to_string(shape);
  };
  if (summary.tensor_count == 0) return "no tensors";
  if (summary.first.empty()) return told(summary.dtype, summary.shape);
  constexpr std::size_t kMostNameBytes = 200;
  std::string text;
  std::uint32_t count = 0;
  for (const FlatSummary::Each& each : summary.first) {
    std::string one;
    if (!each.name.empty()) one = "\"" + cleaned(each.name, kMostNameBytes) + "\" ";
    one += told(each.dtype, each.shape);
    if (text.size() + one.size() > FlatSummary::kMostTextBytes) break;
    text += (text.empty() ? "" : ", ") + one;
    ++count;
  }
  if (count == summary.tensor_count) return text;
  return text + " and " + std::to_string(summary.tensor_count - count) + " more, of " +
         std::to_string(summary.size_bytes) + " bytes in all";
}

std::uint32_t Flat::hash_of(const Tensor& tensor) noexcept {
  Flat flat;
  flat.hash(tensor);
  return flat.shape_hash_;
}

void Flat::hash(const Tensor& tensor) noexcept {
  mix(shape_hash_, static_cast<std::uint64_t>(tensor.dtype()));
  for (const std::int64_t extent : tensor.shape())
    mix(shape_hash_, static_cast<std::uint64_t>(extent) + 1);
}

void Flat::hash(std::string_view name) noexcept {
  for (; name.size() > sizeof(std::uint64_t); name.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), sizeof word);
    mix(shape_hash_, word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, name.data(), name.size());
  mix(shape_hash_, rest);
  mix(shape_hash_, name.size());
}

Result<void> Flat::add(std::string_view leaf, const Tensor& tensor, Use use, Hold hold,
                       std::string_view where) {
  const auto name = [&] { return "tensor " + std::to_string(first_ + summary_.tensor_count); };
  if (tensor.device() != cpu()) {
    return Error{
        ErrorCode::unsupported_device, where,
        name() + " is on " + to_string(tensor.device()) + "; collectives take tensors of the CPU"};
  }
  if (use == Use::write && tensor.access() == Access::read_only && tensor.size_bytes() != 0)
    return Error{ErrorCode::read_only, where, name() + " may only be read"};
  hash(tensor);
  summary_.add(leaf, tensor);
  if (tensor.size_bytes() == 0) return {};
  Run run{const_cast<std::byte*>(tensor.data()), aligned(size_bytes_), tensor.size_bytes(),
          tensor.dtype()};
  if (!tensor.is_contiguous()) {
    TENDON_TRY(packed, Tensor::empty(tensor.dtype(), tensor.shape()));
    copy_strided(packed, tensor);
    run.data = const_cast<std::byte*>(packed.data());
    if (use == Use::write)
      gappy_.push_back({tensor, packed});
    else
      kept_.push_back(packed);
  } else if (hold == Hold::keep) {
    kept_.push_back(tensor);
  }
  size_bytes_ = run.begin + run.size_bytes;
  if (one_.data == nullptr) {
    one_ = run;
  } else {
    if (runs_.empty()) runs_.push_back(one_);
    runs_.push_back(run);
  }
  return {};
}

Result<void> Flat::fill(const Tensors& tensors, Use use, Hold hold, std::string_view where) {
  const auto add_dict = [&](const TensorDict& dict) -> Result<void> {
    if (use == Use::write) TENDON_CHECK(check_destination(dict));
    for (std::size_t i = 0; i < dict.leaf_count(); ++i) {
      hash(dict.leaf_path(i));
      TENDON_CHECK(add(dict.leaf_path(i), dict.leaf(i), use, hold, where));
    }
    return {};
  };
  if (const auto* const one = std::get_if<const Tensor*>(&tensors.what())) {
    TENDON_CHECK(add({}, **one, use, hold, where));
  } else if (const auto* const dict = std::get_if<const TensorDict*>(&tensors.what())) {
    TENDON_CHECK(add_dict(**dict));
  } else if (const auto* const several = std::get_if<std::span<const Tensor>>(&tensors.what())) {
    for (const Tensor& tensor : *several) TENDON_CHECK(add({}, tensor, use, hold, where));
  } else {
    for (const TensorDict& each : std::get<std::span<const TensorDict>>(tensors.what()))
      TENDON_CHECK(add_dict(each));
  }
  return {};
}

Result<Flat> Flat::make(const Tensors& tensors, Use use, Hold hold, std::string_view where) {
  Flat flat;
  TENDON_CHECK(flat.fill(tensors, use, hold, where));
  // A single dict was checked already.
  const bool several = flat.runs().size() > 1 || flat.is_gappy();
  if (use == Use::write && several && !std::holds_alternative<const TensorDict*>(tensors.what()))
    TENDON_CHECK(check_distinct(tensors, {&flat, 1}));
  return flat;
}

Result<std::vector<Flat>> Flat::cut(std::uint32_t count, std::string_view where) && {
  if (size_bytes_ != 0 && (runs().size() != 1 || size_bytes_ % count != 0 ||
                           size_bytes_ / count % item_size_bytes(one_.dtype) != 0)) {
    return Error{ErrorCode::invalid_argument, where,
                 "a tensor of " + std::to_string(size_bytes_) + " bytes cannot be cut in " +
                     std::to_string(count) + " equal blocks; give a list of " +
                     std::to_string(count) + " tensors"};
  }
  std::vector<Flat> blocks(count);
  const std::uint64_t each = size_bytes_ / count;
  for (std::uint32_t i = 0; i < count && each != 0; ++i) {
    blocks[i].one_ = {one_.data + i * each, 0, each, one_.dtype};
    blocks[i].size_bytes_ = each;
  }
  blocks.front().summary_ = std::move(summary_);
  // Their owners stay with the last block, whose finish() is the last one.
  blocks.back().kept_ = std::move(kept_);
  blocks.back().gappy_ = std::move(gappy_);
  return blocks;
}

Result<std::vector<Flat>> Flat::make_blocks(const Tensors& tensors, std::uint32_t count, Use use,
                                            Hold hold, std::string_view where) {
  const auto wrong_count = [&](std::size_t given) {
    return Error{
        ErrorCode::invalid_argument, where,
        "a list of " + std::to_string(given) + " blocks for " + std::to_string(count) + " members"};
  };
  const auto one_of_each = [&](const auto& list) -> Result<std::vector<Flat>> {
    if (list.size() != count) return wrong_count(list.size());
    std::vector<Flat> blocks(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      blocks[i].first_ = i;
      TENDON_CHECK(blocks[i].fill(list[i], use, hold, where));
    }
    if (use == Use::write) TENDON_CHECK(check_distinct(tensors, blocks));
    return blocks;
  };
  if (const auto* const several = std::get_if<std::span<const Tensor>>(&tensors.what()))
    return one_of_each(*several);
  if (const auto* const dicts = std::get_if<std::span<const TensorDict>>(&tensors.what()))
    return one_of_each(*dicts);
  if (std::holds_alternative<const TensorDict*>(tensors.what())) {
    return Error{ErrorCode::invalid_argument, where,
                 "one TensorDict is no list of blocks; give one for each of " +
                     std::to_string(count) + " members"};
  }
  TENDON_TRY(whole, make(tensors, use, hold, where));
  return std::move(whole).cut(count, where);
}

std::optional<DType> Flat::dtype() const noexcept {
  const auto all = runs();
  if (all.empty()) return {};
  for (const Run& run : all)
    if (run.dtype != all.front().dtype) return {};
  return all.front().dtype;
}

Result<void> Flat::copy() {
  TENDON_TRY(memory, Tensor::empty(DType::u8, Shape({static_cast<std::int64_t>(size_bytes_)})));
  auto* const begin = const_cast<std::byte*>(memory.data());
  const auto move = [&](Run& run) {
    std::memcpy(begin + run.begin, run.data, run.size_bytes);
    run.data = begin + run.begin;
  };
  if (one_.data != nullptr) move(one_);
  if (!runs_.empty()) runs_.front() = one_;
  for (std::size_t i = 1; i < runs_.size(); ++i) move(runs_[i]);
  // If a tensor was cut in blocks, one of them keeps a share for all.
  kept_.push_back(std::move(memory));
  return {};
}

bool Flat::is_same(const Flat& other) const noexcept {
  const auto ours = runs();
  const auto theirs = other.runs();
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                    [](const Run& one, const Run& another) {
                      return one.data == another.data && one.begin == another.begin &&
                             one.size_bytes == another.size_bytes;
                    });
}

void Flat::finish() {
  for (const Gappy& each : gappy_) copy_strided(each.original, each.packed);
  gappy_.clear();
}

}  // namespace tendon::v0::detail
