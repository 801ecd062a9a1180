// SPDX-License-Identifier: Apache-2.0
// The loop of every reduction, once per instruction set: a header of Highway's kind, included anew
// for each target by the files that set HWY_TARGET_INCLUDE.

// Highway's guard: it lets each target in once.
#if defined(TENDON_GROUP_REDUCE_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENDON_GROUP_REDUCE_LOOP_INL_H
#undef TENDON_GROUP_REDUCE_LOOP_INL_H
#else
#define TENDON_GROUP_REDUCE_LOOP_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "group/reduce/reduce_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace tendon::v0::detail::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// No function of the standard library below, only memcpy and memset: a template made here would be
// compiled for this target, and the linker might take it for the whole program.

/// The parts that codecs share: their operations work on vectors.
struct OfVectors {
  template <class Op>
  HWY_INLINE Op adapt(const Op& op) const {
    return op;
  }
};

/// Elements that are combined in their form in memory.
template <class T>
struct Plain : OfVectors {
  hn::ScalableTag<T> d;

  HWY_INLINE std::size_t step_bytes() const { return hn::Lanes(d) * sizeof(T); }
  HWY_INLINE hn::Vec<hn::ScalableTag<T>> load(const std::byte* from) const {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  }
  template <class V>
  HWY_INLINE void store(V v, std::byte* to) const {
    hn::StoreU(v, d, reinterpret_cast<T*>(to));
  }
};

/// `codec` makes vectors of memory and back: step_bytes() of memory a vector, load(), store().
/// `operation` combines them: first(v) of the first input, next(so far, v) of each other,
/// last(result).
template <class Codec, class Operation>
HWY_INLINE void combine(const Reduction& reduction, const Codec& codec,
                        const Operation& operation) {
  const auto op = codec.adapt(operation);
  const std::byte* const* const inputs = reduction.inputs.data();
  const std::size_t inputs_count = reduction.inputs.size();
  std::byte* const out = reduction.out.data();
  const std::size_t bytes = reduction.out.size();
  const std::size_t step = codec.step_bytes();
  std::size_t at = 0;
  // Four vectors at once: the additions do not wait for each other, and the loop over the inputs,
  // whose count is not known here, costs a quarter.
  for (; bytes - at >= 4 * step; at += 4 * step) {
    const std::byte* from = inputs[0] + at;
    auto a = op.first(codec.load(from));
    auto b = op.first(codec.load(from + step));
    auto c = op.first(codec.load(from + 2 * step));
    auto d = op.first(codec.load(from + 3 * step));
    for (std::size_t i = 1; i < inputs_count; ++i) {
      from = inputs[i] + at;
      a = op.next(a, codec.load(from));
      b = op.next(b, codec.load(from + step));
      c = op.next(c, codec.load(from + 2 * step));
      d = op.next(d, codec.load(from + 3 * step));
    }
    codec.store(op.last(a), out + at);
    codec.store(op.last(b), out + at + step);
    codec.store(op.last(c), out + at + 2 * step);
    codec.store(op.last(d), out + at + 3 * step);
  }
  for (; bytes - at >= step; at += step) {
    auto a = op.first(codec.load(inputs[0] + at));
    for (std::size_t i = 1; i < inputs_count; ++i) a = op.next(a, codec.load(inputs[i] + at));
    codec.store(op.last(a), out + at);
  }
  if (at == bytes) return;
  // The rest uses the same arithmetic in a vector of its own. So the bits of an element do not
  // depend on its place, and nothing is read or written beyond the end.
  HWY_ALIGN std::byte rest[HWY_MAX_BYTES];
  std::memset(rest, 0, sizeof(rest));
  std::memcpy(rest, inputs[0] + at, bytes - at);
  auto a = op.first(codec.load(rest));
  for (std::size_t i = 1; i < inputs_count; ++i) {
    std::memcpy(rest, inputs[i] + at, bytes - at);
    a = op.next(a, codec.load(rest));
  }
  codec.store(op.last(a), rest);
  std::memcpy(out + at, rest, bytes - at);
}

/// The parts that operations share.
struct Unchanged {
  template <class V>
  HWY_INLINE V first(V v) const {
    return v;
  }
  template <class V>
  HWY_INLINE V last(V v) const {
    return v;
  }
};

struct Sum : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Add(so_far, v);
  }
};

// ---- floats: T is what they are combined in, f32 or f64

template <class T>
struct Average : Sum {
  T count;

  template <class V>
  HWY_INLINE V last(V v) const {
    return hn::Div(v, hn::Set(hn::DFromV<V>(), count));
  }
};

template <class T>
struct PremulSum : Unchanged {
  T factor;

  template <class V>
  HWY_INLINE V first(V v) const {
    return hn::Mul(v, hn::Set(hn::DFromV<V>(), factor));
  }
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Add(so_far, first(v));
  }
};

struct FloatProduct : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    return hn::Mul(so_far, v);
  }
};

// Processors disagree about the minimum of NaN and of two zeros, so both are spelt out. A NaN
// stays, and equals are combined bit by bit, which matters only for the sign of zero.
struct FloatMin : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    const V less = hn::IfThenElse(hn::Lt(so_far, v), so_far, v);
    const V least = hn::IfThenElse(hn::Eq(so_far, v), hn::Or(so_far, v), less);
    return hn::IfThenElse(hn::IsNaN(so_far), so_far, least);
  }
};

struct FloatMax : Unchanged {
  template <class V>
  HWY_INLINE V next(V so_far, V v) const {
    const V more = hn::IfThenElse(hn::Lt(v, so_far), so_far, v);
    const V most = hn::IfThenElse(hn::Eq(so_far, v), hn::And(so_far, v), more);
    return hn::IfThenElse(hn::IsNaN(so_far), so_far, most);
  }
};

/// Elements that `codec` turns into vectors of T.
template <class T, class Codec>
HWY_INLINE void combine_floats(const Reduction& reduction, const Codec& codec) {
  switch (reduction.kind) {
    case ReduceKind::sum:
      return combine(reduction, codec, Sum{});
    case ReduceKind::avg:
      return combine(reduction, codec, Average<T>{{}, static_cast<T>(reduction.inputs.size())});
    case ReduceKind::premul_sum:
      return combine(reduction, codec, PremulSum<T>{{}, static_cast<T>(reduction.factor)});
    case ReduceKind::product:
      return combine(reduction, codec, FloatProduct{});
    case ReduceKind::min:
      return combine(reduction, codec, FloatMin{});
    case ReduceKind::max:
      return combine(reduction, codec, FloatMax{});
    case ReduceKind::bit_and:
    case ReduceKind::bit_or:
    case ReduceKind::bit_xor:
      break;  // check_reduce() refused them
  }
}

}  // namespace
}  // namespace tendon::v0::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENDON_GROUP_REDUCE_LOOP_INL_H
