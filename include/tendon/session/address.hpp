// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon {
inline namespace v0 {

enum class AddressKind : std::uint8_t {
  ip,         ///< host and port
  unix_path,  ///< a unix socket: a path, or a name in the abstract namespace ("@name")
};

/// The address of a listener or a peer.
///
/// Example:
///   Result<Address> address = Address::parse("[::1]:7000");
///   if (!address) std::cerr << address.error().message() << '\n';  // and the legal forms
///   if (address->kind() == AddressKind::ip)
///     std::cout << address->host() << " port " << address->port() << '\n';
///   std::cout << address->to_string() << '\n';
///
/// Owns:    its text.
/// Threads: a value.
/// Errors:  parse() returns invalid_argument with the value and the legal forms.
/// Blocks:  never: names are looked up by connect and bind, within their deadlines.
/// Cost:    one or two strings.
///
/// Legal forms: "127.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:7000", "host.name:7000",
/// "unix:/path/of/socket", "unix:@abstract". Port 0 lets bind choose a free one. "*" is no host:
/// say "0.0.0.0:7000" or "[::]:7000" for every interface.
class TENDON_API Address {
 public:
  /// Names nothing: to_string() is empty. It can only be assigned to.
  Address() = default;
  [[nodiscard]] static Result<Address> parse(std::string_view text);

  [[nodiscard]] AddressKind kind() const noexcept { return kind_; }
  /// Without brackets: "::1". Empty for unix sockets.
  [[nodiscard]] const std::string& host() const& noexcept { return host_; }
  const std::string& host() const&& = delete;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// "/run/x.sock" or "@name". Empty for hosts.
  [[nodiscard]] const std::string& path() const& noexcept { return path_; }
  const std::string& path() const&& = delete;
  /// The form that parse() takes.
  [[nodiscard]] std::string to_string() const;
  /// True for 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104 written as numbers. A name, even
  /// "localhost", is known only after a look-up.
  [[nodiscard]] bool is_loopback_literal() const;

  friend bool operator==(const Address&, const Address&) = default;

 private:
  AddressKind kind_ = AddressKind::ip;
  std::uint16_t port_ = 0;
  std::string host_;
  std::string path_;
};

}  // namespace v0
}  // namespace tendon
