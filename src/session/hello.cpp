// SPDX-License-Identifier: Apache-2.0
#include "session/hello.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "core/peer_error.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

static_assert(std::endian::native == std::endian::little && sizeof(void*) == 8,
              "integers are copied to and from the wire as they lie in memory");

constexpr std::string_view kWhere = "session.hello";
constexpr std::array<std::byte, 4> kMagic = {std::byte{'T'}, std::byte{'N'}, std::byte{'D'},
                                             std::byte{'N'}};
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kTlvHeaderBytes = 4;
constexpr std::uint16_t kCritical = 0x8000;

// Numbers are never reused. A field that a reader must understand to act correctly is critical.
constexpr std::uint16_t kKind = 0x8001;
constexpr std::uint16_t kProfile = 0x8002;
constexpr std::uint16_t kContextId = 0x0003;
constexpr std::uint16_t kIncarnation = 0x0004;
constexpr std::uint16_t kPid = 0x0005;
constexpr std::uint16_t kUid = 0x0006;
constexpr std::uint16_t kHost = 0x0007;
constexpr std::uint16_t kName = 0x0008;
constexpr std::uint16_t kLibraryVersion = 0x0009;
constexpr std::uint16_t kBootId = 0x000A;
constexpr std::uint16_t kToken = 0x000B;
constexpr std::uint16_t kTicket = 0x000C;
constexpr std::uint16_t kNonce = 0x000D;
constexpr std::uint16_t kProgress = 0x000E;
constexpr std::uint16_t kReuse = 0x800F;
constexpr std::uint16_t kLimits = 0x0010;
constexpr std::uint16_t kFeatures = 0x0011;
constexpr std::uint16_t kPath = 0x8012;
constexpr std::uint16_t kReason = 0x0013;
constexpr std::uint16_t kErrorCode = 0x0014;
constexpr std::uint16_t kLaneIndex = 0x8015;
constexpr std::uint16_t kConnection = 0x0016;
constexpr std::size_t kLimitsBytes = 8 + 4 + 8 + 4 + 4;

constexpr Word<std::uint16_t> kFields[] = {{kKind, "kind"},
                                           {kProfile, "profile"},
                                           {kContextId, "context id"},
                                           {kIncarnation, "incarnation"},
                                           {kPid, "pid"},
                                           {kUid, "uid"},
                                           {kHost, "host"},
                                           {kName, "name"},
                                           {kLibraryVersion, "library version"},
                                           {kBootId, "boot id"},
                                           {kToken, "token"},
                                           {kTicket, "ticket"},
                                           {kNonce, "nonce"},
                                           {kProgress, "progress"},
                                           {kReuse, "reuse"},
                                           {kLimits, "limits"},
                                           {kFeatures, "features"},
                                           {kPath, "path"},
                                           {kReason, "reason"},
                                           {kErrorCode, "error code"},
                                           {kLaneIndex, "lane index"},
                                           {kConnection, "connection"}};

std::string_view name_of(std::uint16_t type) {
  const auto* const field = std::ranges::find(kFields, type, &Word<std::uint16_t>::value);
  return field == std::end(kFields) ? std::string_view() : field->text;
}

constexpr std::uint64_t bit_of(std::uint16_t type) {
  return std::uint64_t{1} << (type & ~kCritical);
}
constexpr std::uint64_t bits_of(std::initializer_list<std::uint16_t> types) {
  std::uint64_t bits = 0;
  for (const std::uint16_t type : types) bits |= bit_of(type);
  return bits;
}

/// The fields that a frame of this kind must have: the table in the header.
std::uint64_t required_by(HelloKind kind) {
  switch (kind) {
    case HelloKind::hello:
      return bits_of({kProfile, kContextId, kIncarnation, kPid, kUid, kProgress, kLimits});
    case HelloKind::attach:
      return bits_of({kNonce});
    case HelloKind::path:
      return bits_of({kPath});
    case HelloKind::ready:
      return 0;
    case HelloKind::reject:
      return bits_of({kErrorCode});
    case HelloKind::lane:
      return bits_of({kContextId, kTicket, kLaneIndex});
  }
  return 0;
}

std::string hex_of(std::uint16_t number) {
  const std::array<std::byte, 2> bytes = {static_cast<std::byte>(number >> 8),
                                          static_cast<std::byte>(number & 0xFF)};
  return "0x" + to_hex(bytes);
}

Error violation(std::string detail) {
  return Error{ErrorCode::protocol_violation, kWhere, std::move(detail)};
}

std::string describe(std::uint16_t type) {
  return "field '" + std::string(name_of(type)) + "' (type " + hex_of(type) + ")";
}

template <class T>
T load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <std::integral T>
void append(std::vector<std::byte>& out, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// ---- writing ----

class Writer {
 public:
  explicit Writer(const ProtocolVersion& version) {
    out_.insert(out_.end(), kMagic.begin(), kMagic.end());
    append(out_, version.major);
    append(out_, version.minor);
    append(out_, version.min_major);
    append(out_, std::uint16_t{0});
    append(out_, std::uint32_t{0});
  }

  template <std::integral T>
  void number(std::uint16_t type, T value) {
    begin(type, sizeof value);
    append(out_, value);
  }
  template <class E>
    requires std::is_enum_v<E>
  void number(std::uint16_t type, E value) {
    number(type, static_cast<std::underlying_type_t<E>>(value));
  }
  void bytes(std::uint16_t type, Bytes value) {
    begin(type, value.size());
    out_.insert(out_.end(), value.begin(), value.end());
  }
  void limits(const LinkLimits& value) {
    begin(kLimits, kLimitsBytes);
    append(out_, value.link_cap_bytes);
    append(out_, value.window_messages);
    append(out_, value.window_bytes);
    append(out_, value.max_leaves);
    append(out_, value.streams);
  }
  std::vector<std::byte> finish() && {
    const auto length = static_cast<std::uint32_t>(out_.size() - kHeaderBytes);
    std::memcpy(out_.data() + 12, &length, sizeof length);
    return std::move(out_);
  }

 private:
  void begin(std::uint16_t type, std::size_t size) {
    append(out_, type);
    append(out_, static_cast<std::uint16_t>(size));
  }
  std::vector<std::byte> out_;
};

// ---- reading ----

struct Field {
  std::uint16_t type;
  Bytes value;
};

Result<void> wrong_size(const Field& field, std::string_view legal) {
  return violation(describe(field.type) + " has " + std::to_string(field.value.size()) +
                   " bytes; legal: " + std::string(legal));
}

Result<void> wrong_value(const Field& field, std::uint64_t value, std::string_view legal) {
  return violation(describe(field.type) + " is " + std::to_string(value) +
                   "; legal: " + std::string(legal));
}

template <std::integral T>
Result<void> read_number(const Field& field, T& into) {
  if (field.value.size() != sizeof(T)) return wrong_size(field, std::to_string(sizeof(T)));
  into = load<T>(field.value.data());
  return {};
}

Result<void> read_token(const Field& field, std::array<std::byte, 16>& into) {
  if (field.value.size() != into.size()) return wrong_size(field, "16");
  std::copy(field.value.begin(), field.value.end(), into.begin());
  // Zero means absent, and a writer leaves absent fields out.
  if (is_none(into)) return violation(describe(field.type) + " is all zero; leave it out instead");
  return {};
}

Result<void> read_text(const Field& field, std::size_t max_bytes, std::string& into) {
  if (field.value.empty() || field.value.size() > max_bytes) {
    return wrong_size(field, "1-" + std::to_string(max_bytes));
  }
  if (!is_text(as_text(field.value))) {
    return violation(describe(field.type) + " is not UTF-8 without control characters");
  }
  // Names of peers appear in errors, logs and events, so they are made printable here.
  into = cleaned(as_text(field.value));
  return {};
}

Result<void> read_limits(const Field& field, std::optional<LinkLimits>& into) {
  if (field.value.size() != kLimitsBytes) return wrong_size(field, std::to_string(kLimitsBytes));
  const std::byte* at = field.value.data();
  const LinkLimits limits{.link_cap_bytes = load<std::uint64_t>(at),
                          .window_messages = load<std::uint32_t>(at + 8),
                          .window_bytes = load<std::uint64_t>(at + 12),
                          .max_leaves = load<std::uint32_t>(at + 20),
                          .streams = load<std::uint32_t>(at + 24)};
  if (limits.link_cap_bytes == 0 || limits.window_messages == 0 || limits.window_bytes == 0 ||
      limits.max_leaves == 0 || limits.streams == 0) {
    return violation(describe(field.type) + " holds a zero; every limit must let something pass");
  }
  if (limits.link_cap_bytes > kMaxPeerCapBytes) {
    return violation(describe(field.type) + " has a link cap of " +
                     std::to_string(limits.link_cap_bytes) + " bytes; legal: 1-" +
                     std::to_string(kMaxPeerCapBytes));
  }
  into = limits;
  return {};
}

Result<void> read_kind(const Field& field, HelloKind& into) {
  std::uint8_t value = 0;
  TENDON_CHECK(read_number(field, value));
  switch (static_cast<HelloKind>(value)) {
    case HelloKind::hello:
    case HelloKind::attach:
    case HelloKind::path:
    case HelloKind::ready:
    case HelloKind::reject:
    case HelloKind::lane:
      into = static_cast<HelloKind>(value);
      return {};
  }
  return wrong_value(field, value, "1 (hello) to 6 (lane)");
}

Result<void> read_profile(const Field& field, std::optional<Profile>& into) {
  std::uint8_t value = 0;
  TENDON_CHECK(read_number(field, value));
  switch (static_cast<Profile>(value)) {
    case Profile::local:
    case Profile::plaintext:
    case Profile::secure:
      into = static_cast<Profile>(value);
      return {};
  }
  return wrong_value(field, value, "1 (local) to 3 (secure)");
}

Result<void> read_progress(const Field& field, std::optional<ProgressMode>& into) {
  std::uint8_t value = 0;
  TENDON_CHECK(read_number(field, value));
  switch (static_cast<ProgressMode>(value)) {
    case ProgressMode::service:
    case ProgressMode::manual:
      into = static_cast<ProgressMode>(value);
      return {};
  }
  return wrong_value(field, value, "1 (service), 2 (manual)");
}

Result<void> read_reuse(const Field& field, std::optional<Reuse>& into) {
  std::uint8_t value = 0;
  TENDON_CHECK(read_number(field, value));
  switch (static_cast<Reuse>(value)) {
    case Reuse::fresh:
    case Reuse::reuse:
      into = static_cast<Reuse>(value);
      return {};
  }
  return wrong_value(field, value, "1 (fresh), 2 (reuse)");
}

Result<void> read_path(const Field& field, PathKind& into) {
  std::uint8_t value = 0;
  TENDON_CHECK(read_number(field, value));
  switch (static_cast<PathKind>(value)) {
    case PathKind::shm:
    case PathKind::tcp:
    case PathKind::routed:
      into = static_cast<PathKind>(value);
      return {};
    case PathKind::none:
      break;
  }
  return wrong_value(field, value, "1 (shm), 2 (tcp), 3 (routed)");
}

Result<void> read_error_code(const Field& field, std::uint16_t& into) {
  TENDON_CHECK(read_number(field, into));
  if (into == 0) return wrong_value(field, into, "1-65535");
  return {};
}

/// False for a type this build does not know.
Result<bool> read_field(const Field& field, HelloMessage& into) {
  const auto known = [](Result<void> outcome) -> Result<bool> {
    if (!outcome) return std::move(outcome).error();
    return true;
  };
  switch (field.type) {
    case kKind:
      return known(read_kind(field, into.kind));
    case kProfile:
      return known(read_profile(field, into.profile));
    case kContextId:
      return known(read_token(field, into.context_id.bytes));
    case kIncarnation:
      return known(read_number(field, into.incarnation));
    case kPid:
      return known(read_number(field, into.pid));
    case kUid:
      return known(read_number(field, into.uid));
    case kHost:
      return known(read_text(field, kMaxIdentityTextBytes, into.host));
    case kName:
      return known(read_text(field, kMaxIdentityTextBytes, into.name));
    case kLibraryVersion:
      return known(read_text(field, kMaxVersionTextBytes, into.library_version));
    case kBootId:
      return known(read_token(field, into.boot_id));
    case kToken:
      return known(read_token(field, into.token));
    case kTicket:
      return known(read_token(field, into.ticket));
    case kNonce:
      return known(read_token(field, into.nonce));
    case kProgress:
      return known(read_progress(field, into.progress));
    case kReuse:
      return known(read_reuse(field, into.reuse));
    case kLimits:
      return known(read_limits(field, into.limits));
    case kFeatures:
      return known(read_number(field, into.features));
    case kPath:
      return known(read_path(field, into.path));
    case kReason:
      return known(read_text(field, kMaxReasonBytes, into.reason));
    case kErrorCode:
      return known(read_error_code(field, into.error_code));
    case kLaneIndex:
      return known(read_number(field, into.lane_index));
    case kConnection:
      return known(read_text(field, kMaxConnectionTextBytes, into.connection));
    default:
      return false;
  }
}

struct Header {
  ProtocolVersion version;
  std::size_t body_bytes = 0;
};

/// Other protocols, with the first bytes that their servers and clients send.
struct OtherProtocol {
  std::string_view first_bytes;
  std::string_view name;
  std::string_view hint = {};
};
constexpr std::array kOtherProtocols = {
    OtherProtocol{"HTTP", "HTTP"},
    OtherProtocol{"GET ", "HTTP"},
    OtherProtocol{"<!DO", "HTTP"},
    OtherProtocol{"<!do", "HTTP"},
    OtherProtocol{"<htm", "HTTP"},
    OtherProtocol{"<HTM", "HTTP"},
    OtherProtocol{"POST", "HTTP"},
    OtherProtocol{"HEAD", "HTTP"},
    OtherProtocol{"PUT ", "HTTP"},
    OtherProtocol{"PRI ", "HTTP/2"},
    OtherProtocol{"SSH-", "SSH"},
    OtherProtocol{"220 ", "SMTP or FTP"},
    OtherProtocol{"-ERR", "Redis"},
    // An alert: the answer to our first frame.
    OtherProtocol{"\x15\x03", "TLS",
                  ": a secure listener of Tendon does so, and wants a key or a certificate "
                  "(Security::load(), --key FILE of `tendon send`)"},
    // A ClientHello.
    OtherProtocol{"\x16\x03", "TLS",
                  ": a connection with a key or a certificate does so, and this listener has none: "
                  "use the same key on both ends, or none (Security::load(), --key FILE of "
                  "`tendon recv`)"},
};

Result<void> check_magic(Bytes magic) {
  if (std::equal(magic.begin(), magic.end(), kMagic.begin(), kMagic.end())) return {};
  std::string speaks;
  for (const OtherProtocol& other : kOtherProtocols)
    if (as_text(magic).starts_with(other.first_bytes))
      speaks = " but " + std::string(other.name) + ", as it seems" + std::string(other.hint);
  return Error{ErrorCode::protocol_violation, "session.first_bytes",
               "the peer does not speak Tendon's protocol" + speaks + " (first bytes " +
                   to_hex(magic) + "; legal: " + to_hex(kMagic) + ", \"TNDN\")"};
}

/// Precondition: `bytes` has kHeaderBytes.
Result<Header> read_header(Bytes bytes) {
  TENDON_CHECK(check_magic(bytes.first(kMagic.size())));
  Header header;
  header.version = {.major = load<std::uint16_t>(bytes.data() + 4),
                    .minor = load<std::uint16_t>(bytes.data() + 6),
                    .min_major = load<std::uint16_t>(bytes.data() + 8)};
  // Checks the version first, because another major may define everything after it differently.
  TENDON_CHECK(agree_on_major(ProtocolVersion{}, header.version));
  if (const auto reserved = load<std::uint16_t>(bytes.data() + 10); reserved != 0) {
    return violation("the reserved field of a frame is " + std::to_string(reserved) + "; legal: 0");
  }
  header.body_bytes = load<std::uint32_t>(bytes.data() + 12);
  if (header.body_bytes > kMaxHelloBytes - kHeaderBytes) {
    return violation("a frame announces " + std::to_string(header.body_bytes) +
                     " bytes after its header; legal: 0-" +
                     std::to_string(kMaxHelloBytes - kHeaderBytes));
  }
  return header;
}

Result<HelloMessage> read_body(const ProtocolVersion& version, Bytes body) {
  HelloMessage message;
  message.version = version;
  std::uint64_t seen = 0;
  while (!body.empty()) {
    if (body.size() < kTlvHeaderBytes) {
      return violation("a frame ends inside the head of a field: " + std::to_string(body.size()) +
                       " of 4 bytes");
    }
    const auto type = load<std::uint16_t>(body.data());
    const std::size_t size = load<std::uint16_t>(body.data() + 2);
    body = body.subspan(kTlvHeaderBytes);
    if (size > body.size()) {
      return violation("the field of type " + hex_of(type) + " has " + std::to_string(size) +
                       " bytes and its frame only " + std::to_string(body.size()) + " more");
    }
    const Field field{type, body.first(size)};
    body = body.subspan(size);
    TENDON_TRY(is_known, read_field(field, message));
    if (!is_known) {
      if ((type & kCritical) == 0) continue;
      return violation("the critical field of type " + hex_of(type) +
                       " is unknown to this version (" + std::string(kVersion) + ")");
    }
    if ((seen & bit_of(type)) != 0) {
      return violation(describe(type) + " comes twice; legal: once");
    }
    seen |= bit_of(type);
  }
  if ((seen & bit_of(kKind)) == 0) return violation("a frame lacks its " + describe(kKind));
  const std::uint64_t missing = required_by(message.kind) & ~seen;
  if (missing != 0) {
    const auto number = static_cast<std::uint16_t>(std::countr_zero(missing));
    const auto type =
        name_of(number).empty() ? static_cast<std::uint16_t>(number | kCritical) : number;
    return violation("a frame of kind '" + std::string(to_string(message.kind)) + "' lacks its " +
                     describe(type));
  }
  return message;
}

std::string range_of(const ProtocolVersion& version) {
  const std::string newest = std::to_string(version.major) + "." + std::to_string(version.minor);
  return version.min_major == version.major ? newest
                                            : std::to_string(version.min_major) + " to " + newest;
}

}  // namespace

Result<std::uint16_t> agree_on_major(const ProtocolVersion& ours, const ProtocolVersion& theirs) {
  if (theirs.min_major > theirs.major) {
    return violation("the peer says it speaks versions " + std::to_string(theirs.min_major) +
                     " to " + std::to_string(theirs.major) + " of the protocol, which is no range");
  }
  const std::uint16_t best = std::min(ours.major, theirs.major);
  if (best < ours.min_major || best < theirs.min_major) {
    return Error{ErrorCode::version_mismatch, kWhere,
                 "the peer speaks version " + range_of(theirs) + " of the protocol, this build (" +
                     std::string(kVersion) + ") version " + range_of(ours) +
                     "; both must share a major version"};
  }
  return best;
}

std::vector<std::byte> encode(const HelloMessage& message) {
  const std::uint64_t required = required_by(message.kind);
  const auto is_required = [&](std::uint16_t type) { return (required & bit_of(type)) != 0; };
  Writer out(message.version);
  const auto number = [&](std::uint16_t type, auto value) {
    if (value != decltype(value){} || is_required(type)) out.number(type, value);
  };
  const auto choice = [&](std::uint16_t type, const auto& value) {
    if (value) out.number(type, *value);
  };
  const auto token = [&](std::uint16_t type, const std::array<std::byte, 16>& value) {
    if (!is_none(value)) out.bytes(type, value);
  };
  const auto text = [&](std::uint16_t type, const std::string& value, std::size_t max_bytes) {
    const std::string clean = cleaned(value, max_bytes);
    if (!clean.empty()) out.bytes(type, as_bytes(clean));
  };
  out.number(kKind, message.kind);
  choice(kProfile, message.profile);
  token(kContextId, message.context_id.bytes);
  number(kIncarnation, message.incarnation);
  number(kPid, message.pid);
  number(kUid, message.uid);
  text(kHost, message.host, kMaxIdentityTextBytes);
  text(kName, message.name, kMaxIdentityTextBytes);
  text(kLibraryVersion, message.library_version, kMaxVersionTextBytes);
  token(kBootId, message.boot_id);
  token(kToken, message.token);
  token(kTicket, message.ticket);
  token(kNonce, message.nonce);
  choice(kProgress, message.progress);
  choice(kReuse, message.reuse);
  if (message.limits) out.limits(*message.limits);
  number(kFeatures, message.features);
  number(kPath, message.path);
  text(kReason, message.reason, kMaxReasonBytes);
  number(kErrorCode, message.error_code);
  number(kLaneIndex, message.lane_index);
  text(kConnection, message.connection, kMaxConnectionTextBytes);
  return std::move(out).finish();
}

Result<HelloMessage> decode(Bytes frame) {
  if (frame.size() < kHeaderBytes) {
    return violation("a frame has " + std::to_string(frame.size()) + " bytes; legal: 16-" +
                     std::to_string(kMaxHelloBytes));
  }
  TENDON_TRY(header, read_header(frame.first(kHeaderBytes)));
  const Bytes body = frame.subspan(kHeaderBytes);
  if (body.size() != header.body_bytes) {
    return violation("a frame announces " + std::to_string(header.body_bytes) +
                     " bytes after its header and has " + std::to_string(body.size()));
  }
  return read_body(header.version, body);
}

PeerIdentity identity_of(const HelloMessage& hello) {
  return PeerIdentity{.context = hello.context_id,
                      .incarnation = hello.incarnation,
                      .pid = hello.pid,
                      .uid = hello.uid,
                      .host = hello.host,
                      .name = hello.name};
}

HelloMessage rejection_of(const Error& error) {
  HelloMessage message;
  message.kind = HelloKind::reject;
  message.error_code = static_cast<std::uint16_t>(error.code);
  message.reason = error.detail;
  return message;
}

Error error_of(const HelloMessage& reject) {
  std::string detail = "the peer refused";
  if (!reject.reason.empty()) detail += ": " + reject.reason;
  if (const auto code = code_from_peer(reject.error_code, PeerSays::refusal))
    return Error{*code, kWhere, std::move(detail)};
  detail += " (" + error_id(static_cast<ErrorCode>(reject.error_code)) + ")";
  return Error{ErrorCode::unreachable, kWhere, std::move(detail)};
}

Result<std::optional<HelloMessage>> HelloReader::on_bytes(Bytes& input) {
  if (failure_) return *failure_;
  const auto fill_to = [&](std::size_t size) {
    const std::size_t taken = std::min(size - buffer_.size(), input.size());
    buffer_.insert(buffer_.end(), input.begin(),
                   input.begin() + static_cast<std::ptrdiff_t>(taken));
    input = input.subspan(taken);
    return buffer_.size() == size;
  };
  const auto fail = [&](Error error) {
    failure_ = std::move(error);
    return *failure_;
  };
  // The magic is checked by itself, so that a client that sends "GET / HTTP/1.1" and waits is
  // answered.
  if (buffer_.size() < kMagic.size()) {
    if (!fill_to(kMagic.size())) return std::nullopt;
    if (auto checked = check_magic(buffer_); !checked) return fail(std::move(checked).error());
  }
  if (buffer_.size() < kHeaderBytes && !fill_to(kHeaderBytes)) return std::nullopt;
  auto header = read_header(Bytes(buffer_).first(kHeaderBytes));
  if (!header) return fail(std::move(header).error());
  if (!fill_to(kHeaderBytes + header->body_bytes)) return std::nullopt;
  auto message = read_body(header->version, Bytes(buffer_).subspan(kHeaderBytes));
  if (!message) return fail(std::move(message).error());
  buffer_.clear();
  return std::optional<HelloMessage>(*std::move(message));
}

}  // namespace tendon::v0::detail
