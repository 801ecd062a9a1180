// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <tendon/core/error.hpp>
#include <type_traits>
#include <utility>
#include <variant>

namespace tendon {
inline namespace v0 {

namespace detail {
[[noreturn]] TENDON_API void throw_error(Error error);
/// Writes the error to stderr and aborts: the value behind an error was used.
[[noreturn]] TENDON_API void abort_without_value(const Error& error) noexcept;
template <class T>
struct IsResult : std::false_type {};
}  // namespace detail

/// A value or the error that prevented it; the shape of C++23's `std::expected<T, Error>`.
///
/// Example:
///   Result<TensorDict> received = pipe.recv(1s);
///   if (received) {
///     std::cout << *received << '\n';
///   } else if (received.error().code != ErrorCode::timeout) {
///     std::cerr << received.error().message() << '\n';
///   }
///   TensorDict batch = pipe.recv(1s).value();  // throws Exception
///
/// Owns:    the value or the error.
/// Threads: a value.
/// Errors:  `value()` throws Exception; `*` and `->` of an error print it and abort.
/// Blocks:  never.
/// Cost:    the larger of T and Error; no allocation on success.
///
/// Two ways to use it: `if (auto r = f()) use(*r); else handle(r.error());` or `f().value()`, which
/// throws. `value() &&` returns by value, so that `for (auto& x : f().value())` does not read a
/// dead object. Accessors that return references do not exist on rvalues.
template <class T>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T>,
                "a Result holds a value; use a pointer or a reference_wrapper");

 public:
  using value_type = T;

  template <class U = T>
    requires(std::constructible_from<T, U &&> && !std::same_as<std::remove_cvref_t<U>, Result> &&
             !std::same_as<std::remove_cvref_t<U>, Error>)
  Result(U&& value)  // NOLINT(google-explicit-constructor): `return value;` must work
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error)  // NOLINT(google-explicit-constructor): `return Error{...};` must work
      : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// Throws Exception when there is no value.
  [[nodiscard]] T& value() & {
    require();
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    require();
    return *std::get_if<0>(&state_);
  }
  T value() && {
    require();
    return std::move(*std::get_if<0>(&state_));
  }

  /// Precondition: has_value(); else the process writes the error to stderr and aborts, in every
  /// build. The compiler drops the check where has_value() was asked before.
  [[nodiscard]] T& operator*() & noexcept { return *checked(*this); }
  [[nodiscard]] const T& operator*() const& noexcept { return *checked(*this); }
  [[nodiscard]] T operator*() && { return std::move(*checked(*this)); }
  [[nodiscard]] T* operator->() & noexcept { return checked(*this); }
  [[nodiscard]] const T* operator->() const& noexcept { return checked(*this); }
  T* operator->() && = delete;

  /// Precondition: !has_value().
  [[nodiscard]] Error& error() & noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] Error error() && { return std::move(*std::get_if<1>(&state_)); }

  template <class U>
  [[nodiscard]] T value_or(U&& fallback) && {
    return has_value() ? std::move(**this) : static_cast<T>(std::forward<U>(fallback));
  }

  /// `f(value)` where f returns a Result; the error passes through.
  template <class F>
  [[nodiscard]] auto and_then(F&& f) && {
    using R = std::invoke_result_t<F, T&&>;
    static_assert(detail::IsResult<R>::value, "and_then needs a function that returns a Result");
    return has_value() ? std::invoke(std::forward<F>(f), std::move(*std::get_if<0>(&state_)))
                       : R(std::move(*std::get_if<1>(&state_)));
  }
  /// `f(value)` wrapped in a Result; the error passes through.
  template <class F>
  [[nodiscard]] auto transform(F&& f) && {
    using U = std::invoke_result_t<F, T&&>;
    using R = Result<U>;
    if (!has_value()) return R(std::move(*std::get_if<1>(&state_)));
    if constexpr (std::is_void_v<U>) {
      std::invoke(std::forward<F>(f), std::move(*std::get_if<0>(&state_)));
      return R();
    } else {
      return R(std::invoke(std::forward<F>(f), std::move(*std::get_if<0>(&state_))));
    }
  }
  /// `f(error)` where f returns the same kind of Result; the value passes through.
  template <class F>
  [[nodiscard]] Result or_else(F&& f) && {
    return has_value()
               ? std::move(*this)
               : Result(std::invoke(std::forward<F>(f), std::move(*std::get_if<1>(&state_))));
  }

 private:
  void require() const {
    if (!has_value()) detail::throw_error(*std::get_if<1>(&state_));
  }
  template <class Self>
  static auto* checked(Self& self) noexcept {
    if (!self.has_value()) [[unlikely]]
      detail::abort_without_value(*std::get_if<1>(&self.state_));
    return std::get_if<0>(&self.state_);
  }
  std::variant<T, Error> state_;
};

/// Success without a value, or the error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept : state_(std::in_place_index<0>) {}
  Result(Error error)  // NOLINT(google-explicit-constructor): `return Error{...};` must work
      : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  /// Throws Exception when it failed.
  void value() const {
    if (!has_value()) detail::throw_error(*std::get_if<1>(&state_));
  }
  [[nodiscard]] Error& error() & noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] Error error() && { return std::move(*std::get_if<1>(&state_)); }

  template <class F>
  [[nodiscard]] auto and_then(F&& f) && {
    using R = std::invoke_result_t<F>;
    static_assert(detail::IsResult<R>::value, "and_then needs a function that returns a Result");
    return has_value() ? std::invoke(std::forward<F>(f)) : R(std::move(*std::get_if<1>(&state_)));
  }

 private:
  std::variant<std::monostate, Error> state_;
};

namespace detail {
template <class T>
struct IsResult<Result<T>> : std::true_type {};
}  // namespace detail

}  // namespace v0
}  // namespace tendon

#define TENDON_CONCAT_INNER(a, b) a##b
#define TENDON_CONCAT(a, b) TENDON_CONCAT_INNER(a, b)
#define TENDON_TRY_INNER(result, name, ...)                  \
  auto result = (__VA_ARGS__);                               \
  if (!result.has_value()) return std::move(result).error(); \
  auto name = *std::move(result)
/// `TENDON_TRY(pipe, Pipe::connect(...));` declares `pipe` or returns the error from this function.
#define TENDON_TRY(name, ...) \
  TENDON_TRY_INNER(TENDON_CONCAT(tendon_try_, __COUNTER__), name, __VA_ARGS__)
/// The same for a Result<void>, or if the value is not needed.
#define TENDON_CHECK(...)                                                 \
  do {                                                                    \
    if (auto tendon_checked = (__VA_ARGS__); !tendon_checked.has_value()) \
      return std::move(tendon_checked).error();                           \
  } while (false)
