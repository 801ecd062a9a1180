// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <tendon/session/address.hpp>
#include <tendon/session/limits.hpp>

#include "session/resolve.hpp"
#include "tensor/text.hpp"

namespace tendon::v0 {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

Error bad_address(std::string_view text, std::string_view why) {
  return Error{ErrorCode::invalid_argument, "session.address",
               "address " + detail::quote_text(text) + " " + std::string(why) +
                   "; legal forms: 127.0.0.1:7000, [::1]:7000, host.name:7000, "
                   "unix:/path/of/socket, unix:@abstract"};
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, port);
  if (text.empty() || failure != std::errc() || stop != end) return std::nullopt;
  return port;
}

bool is_ipv4(const std::string& text) {
  in_addr ignored{};
  return inet_pton(AF_INET, text.c_str(), &ignored) == 1;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.';
}

// An interface after '%', in the form that if_nametoindex(3) takes.
bool is_scope(std::string_view text) {
  return !text.empty() && text.size() < 16 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_name_character(c) || c == '@' || c == ':';
  });
}

// The fault of a host that is neither an IPv4 nor an IPv6 number; empty if it can be a name.
std::string_view name_fault(std::string_view host) {
  if (host.empty()) return "has no host before the port (0.0.0.0 or [::] is every interface)";
  if (host.find(':') != std::string_view::npos) {
    return "has an IPv6 host, or a second port, without brackets around the host";
  }
  if (host.size() > kMaxHostNameBytes) return "has a host of more than 253 characters";
  if (!std::all_of(host.begin(), host.end(), is_name_character)) {
    return "has a host with a character that names do not have (letters, digits, '-', '_', '.')";
  }
  if (host.front() == '.' || host.front() == '-' || host.find("..") != std::string_view::npos) {
    return "has a host with an empty label or a leading '-'";
  }
  if (host.back() == '.') host.remove_suffix(1);  // the root: "example.org."
  // The resolver would take 127.1 or 10.0.0 for old short forms of IPv4, and 1.2.3.256 for a name.
  const std::string_view last = host.substr(host.rfind('.') + 1);
  if (std::all_of(last.begin(), last.end(), is_digit)) {
    return "has a host that ends in a number and is no IPv4 address of four numbers 0-255";
  }
  return {};
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  Address address;
  if (text.empty()) return bad_address(text, "is empty");
  if (text.find('\0') != std::string_view::npos) return bad_address(text, "holds a zero byte");
  if (text.starts_with(kUnixPrefix)) {
    const std::string_view path = text.substr(kUnixPrefix.size());
    if (path.empty() || path == "@") return bad_address(text, "has no path after 'unix:'");
    if (auto checked = detail::unix_socket_address(path); !checked) {
      return bad_address(text, "has a path longer than 107 bytes, which no unix socket can have");
    }
    address.kind_ = AddressKind::unix_path;
    address.path_ = path;
    return address;
  }

  const bool bracketed = text.front() == '[';
  const std::size_t colon = bracketed ? text.find("]:") + 1 : text.rfind(':');
  if (bracketed && colon == 0) return bad_address(text, "has no ']:' and port after the host");
  if (colon == std::string_view::npos) return bad_address(text, "has no port");
  const auto port = parse_port(text.substr(colon + 1));
  if (!port) return bad_address(text, "has a port that is no number in 0-65535");
  address.port_ = *port;
  address.host_ = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);

  if (bracketed) {
    const std::string number = address.host_.substr(0, address.host_.find('%'));
    in6_addr ignored{};
    if (inet_pton(AF_INET6, number.c_str(), &ignored) != 1 ||
        (number.size() != address.host_.size() &&
         !is_scope(std::string_view(address.host_).substr(number.size() + 1)))) {
      return bad_address(text, "has no IPv6 address between its brackets");
    }
  } else if (!is_ipv4(address.host_)) {
    if (const auto fault = name_fault(address.host_); !fault.empty()) {
      return bad_address(text, fault);
    }
  }
  return address;
}

std::string Address::to_string() const {
  if (kind_ == AddressKind::unix_path) return std::string(kUnixPrefix) + path_;
  if (host_.empty()) return {};
  const bool bracketed = host_.find(':') != std::string::npos;
  return (bracketed ? "[" + host_ + "]:" : host_ + ":") + std::to_string(port_);
}

bool Address::is_loopback_literal() const {
  if (kind_ != AddressKind::ip || host_.empty()) return false;
  if (!is_ipv4(host_) && host_.find(':') == std::string::npos) return false;
  const auto found = detail::resolve(*this, Deadline::now(), detail::ResolveFor::bind);
  return found.has_value() && found->front().is_loopback();
}

}  // namespace tendon::v0
