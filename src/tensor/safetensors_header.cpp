// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <unordered_set>

#include "tensor/c_numbers.hpp"
#include "tensor/json.hpp"
#include "tensor/safetensors_tree.hpp"
#include "tensor/text.hpp"

namespace tendon::v0 {
namespace {

using detail::quote_text;

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kHeaderAlignmentBytes = 64;
static_assert(std::endian::native == std::endian::little, "the length is read as it lies");

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.safetensors", std::move(detail)};
}

// Reads a header while it is parsed: anything outside the format is never stored.
class HeaderHandler {
 public:
  explicit HeaderHandler(SafetensorsHeader& header) : header_(header) {}

  bool null() { return unexpected(); }
  bool boolean(bool) { return unexpected(); }
  bool number_integer(std::int64_t) { return unexpected(); }
  bool number_float(double, const std::string&) { return unexpected(); }
  bool binary(std::vector<std::uint8_t>&) { return unexpected(); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::shape) {
      if (shape_.size() == kMaxDimensions) {
        return fail(ErrorCode::limit_exceeded, entry_name() + " has more than " +
                                                   std::to_string(kMaxDimensions) + " dimensions");
      }
      if (!std::in_range<std::int64_t>(value))
        return fail(ErrorCode::corrupt_data, entry_name() + " has a dimension beyond 2^63 - 1");
      shape_.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets && offsets_.size() < 2) {
      offsets_.push_back(value);
      return true;
    }
    return unexpected();
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      header_.metadata.emplace_back(std::move(key_), std::move(text));
      return true;
    }
    if (place_ != Place::entry || key_ != "dtype") return unexpected();
    dtype_ = dtype_from_safetensors_name(text);
    if (!dtype_) {
      return fail(ErrorCode::unsupported_dtype,
                  entry_name() + " has the element type " + quote_text(text) +
                      "; legal are those of whole bytes in safetensors 0.8");
    }
    return true;
  }

  bool start_object(std::size_t) {
    switch (place_) {
      case Place::start:
        place_ = Place::top;
        return true;
      case Place::top:
        if (key_ == "__metadata__") {
          place_ = Place::metadata;
          return true;
        }
        if (header_.entries.size() == kMaxLeaves) {
          return fail(ErrorCode::limit_exceeded,
                      "more than " + std::to_string(kMaxLeaves) + " tensors");
        }
        header_.entries.emplace_back().name = std::move(key_);
        dtype_.reset();
        shape_.clear();
        offsets_.clear();
        fields_.clear();
        place_ = Place::entry;
        return true;
      default:
        return unexpected();
    }
  }

  bool key(std::string& text) {
    auto& keys = place_ == Place::top        ? names_
                 : place_ == Place::metadata ? metadata_keys_
                                             : fields_;
    if (place_ == Place::metadata && keys.size() == kMaxLeaves) {
      return fail(ErrorCode::limit_exceeded,
                  "more than " + std::to_string(kMaxLeaves) + " entries of __metadata__");
    }
    if (place_ == Place::entry && text != "dtype" && text != "shape" && text != "data_offsets")
      return fail(ErrorCode::corrupt_data,
                  entry_name() + " has the unknown field " + quote_text(text));
    if (!keys.insert(text).second)
      return fail(ErrorCode::corrupt_data, "the key " + quote_text(text) + " comes twice");
    key_ = std::move(text);
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry) return unexpected();
    if (key_ == "shape")
      place_ = Place::shape;
    else if (key_ == "data_offsets")
      place_ = Place::offsets;
    else
      return unexpected();
    return true;
  }

  bool end_array() {
    place_ = Place::entry;
    return true;
  }

  bool end_object() {
    if (place_ == Place::top) {
      place_ = Place::end;
      return true;
    }
    const bool was_entry = place_ == Place::entry;
    place_ = Place::top;
    return was_entry ? finish_entry() : true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    return fail(ErrorCode::corrupt_data,
                "no valid JSON at byte " + std::to_string(position) + " of the header");
  }

  std::optional<Error> failure;

 private:
  enum class Place : std::uint8_t { start, top, metadata, entry, shape, offsets, end };

  std::string entry_name() const { return "tensor " + quote_text(header_.entries.back().name); }

  bool fail(ErrorCode code, std::string detail) {
    failure = error(code, std::move(detail));
    return false;
  }

  bool unexpected() {
    switch (place_) {
      case Place::start:
      case Place::end:
        return fail(ErrorCode::corrupt_data, "the header is not one JSON object");
      case Place::top:
        return fail(ErrorCode::corrupt_data, "the entry " + quote_text(key_) + " is no object");
      case Place::metadata:
        return fail(ErrorCode::corrupt_data,
                    "the entry " + quote_text(key_) + " of __metadata__ is no text");
      case Place::entry:
      case Place::shape:
      case Place::offsets:
        break;
    }
    return fail(ErrorCode::corrupt_data,
                entry_name() + " has a field " + quote_text(key_) +
                    " that is not what it must be: dtype a text, shape a list of sizes, "
                    "data_offsets two numbers");
  }

  bool finish_entry() {
    SafetensorsEntry& entry = header_.entries.back();
    if (!dtype_ || !fields_.contains("shape") || offsets_.size() != 2) {
      return fail(ErrorCode::corrupt_data, entry_name() + " lacks dtype, shape or data_offsets");
    }
    auto shape = Shape::make(shape_);
    if (!shape) return fail(shape.error().code, entry_name() + ": " + shape.error().detail);
    entry.dtype = *dtype_;
    entry.shape = *shape;
    entry.begin_bytes = offsets_[0];
    entry.end_bytes = offsets_[1];
    const auto size_bytes = entry.shape.size_bytes(entry.dtype);
    if (!size_bytes)
      return fail(ErrorCode::corrupt_data, entry_name() + ": " + size_bytes.error().detail);
    if (entry.begin_bytes > entry.end_bytes || entry.end_bytes - entry.begin_bytes != *size_bytes) {
      return fail(ErrorCode::corrupt_data,
                  entry_name() + " has the offsets [" + std::to_string(entry.begin_bytes) + ", " +
                      std::to_string(entry.end_bytes) + "], and " +
                      std::string(to_string(entry.dtype)) + " " + to_string(entry.shape) +
                      " takes " + std::to_string(*size_bytes) + " bytes");
    }
    return true;
  }

  SafetensorsHeader& header_;
  Place place_ = Place::start;
  std::string key_;
  std::optional<DType> dtype_;
  std::vector<std::int64_t> shape_;
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
  std::unordered_set<std::string> fields_;
};

// Checks that the tensors are contiguous: no gap may hide bytes, no byte may belong to two tensors.
Result<std::uint64_t> check_coverage(const SafetensorsHeader& header) {
  std::vector<std::uint32_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto place = [&](std::uint32_t i) {
    return std::pair(header.entries[i].begin_bytes, header.entries[i].end_bytes);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  std::uint64_t end = 0;
  for (const std::uint32_t i : order) {
    const SafetensorsEntry& entry = header.entries[i];
    if (entry.begin_bytes != end) {
      return error(ErrorCode::corrupt_data,
                   "tensor " + quote_text(entry.name) + " starts at byte " +
                       std::to_string(entry.begin_bytes) + ", the one before ends at " +
                       std::to_string(end) + ": holes and overlaps are not allowed");
    }
    end = entry.end_bytes;
  }
  return end;
}

}  // namespace

Result<std::uint64_t> SafetensorsHeader::measure(Bytes file_start) {
  if (file_start.size() < kLengthBytes) {
    return error(ErrorCode::corrupt_data,
                 std::to_string(file_start.size()) + " bytes are too few for a safetensors file");
  }
  std::uint64_t text_bytes = 0;
  std::memcpy(&text_bytes, file_start.data(), sizeof text_bytes);
  if (text_bytes > kMaxFileHeaderBytes) {
    return error(ErrorCode::limit_exceeded, "the header would have " + std::to_string(text_bytes) +
                                                " bytes; legal are up to " +
                                                std::to_string(kMaxFileHeaderBytes) +
                                                " (or this is no safetensors file)");
  }
  return kLengthBytes + text_bytes;
}

Result<SafetensorsHeader> SafetensorsHeader::parse(Bytes file_start) {
  TENDON_TRY(size_bytes, measure(file_start));
  if (size_bytes > file_start.size()) {
    return error(ErrorCode::corrupt_data, "the header has " + std::to_string(size_bytes) +
                                              " bytes, and " + std::to_string(file_start.size()) +
                                              " are there");
  }
  const std::string_view text =
      as_text(file_start.subspan(kLengthBytes, size_bytes - kLengthBytes));
  // JSON may begin with spaces or a byte order mark; the format says that it begins with a brace.
  if (!text.starts_with('{'))
    return error(ErrorCode::corrupt_data, "the header does not begin with '{'");
  SafetensorsHeader header;
  HeaderHandler handler(header);
  const detail::CNumbers c_numbers;
  (void)nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  if (handler.failure) return *std::move(handler.failure);
  header.size_bytes = size_bytes;
  TENDON_TRY(data_bytes, check_coverage(header));
  header.data_bytes = data_bytes;
  return header;
}

Result<std::vector<std::byte>> make_safetensors_header(const TensorDict& dict,
                                                       const SaveOptions& options) {
  const Schema& schema = *dict.schema();
  TENDON_TRY(names, detail::name_tensors(dict));
  std::string json = "{";
  SafetensorsMetadata metadata = options.metadata;
  for (const auto& [key, text] : metadata) {
    if (key == detail::kStructureKey) {
      return error(ErrorCode::invalid_argument,
                   "the metadata entry 'tensordict' is written by Tendon itself");
    }
  }
  if (!names.structure.empty())
    metadata.emplace_back(detail::kStructureKey, std::move(names.structure));
  std::unordered_set<std::string_view> keys;
  for (const auto& [key, text] : metadata) {
    if (!keys.insert(key).second) {
      return error(ErrorCode::invalid_argument,
                   "the metadata entry " + quote_text(key) + " comes twice");
    }
    json += keys.size() == 1 ? "\"__metadata__\":{" : ",";
    TENDON_CHECK(detail::append_json_string(json, key));
    json += ':';
    TENDON_CHECK(detail::append_json_string(json, text));
  }
  if (!keys.empty()) json += '}';

  const PackedLayout& layout = schema.layout(Layout::safetensors);
  for (std::size_t i = 0; i < schema.leaves().size(); ++i) {
    const SchemaLeaf& leaf = schema.leaves()[i];
    const auto dtype = safetensors_name(leaf.dtype);
    if (!dtype) {
      return error(ErrorCode::unsupported_dtype, "leaf " + quote_text(leaf.path) + " is " +
                                                     std::string(to_string(leaf.dtype)) +
                                                     ", which safetensors files cannot hold");
    }
    if (json.size() > 1) json += ',';
    TENDON_CHECK(detail::append_json_string(json, names.tensor_names[i]));
    json += ":{\"dtype\":\"" + std::string(*dtype) + "\",\"shape\":[";
    for (std::size_t d = 0; d < leaf.shape.size(); ++d)
      json += (d == 0 ? "" : ",") + std::to_string(leaf.shape[d]);
    json += "],\"data_offsets\":[" + std::to_string(layout.offsets[i]) + "," +
            std::to_string(layout.offsets[i] + leaf.size_bytes) + "]}";
  }
  json += '}';
  // Spaces at the end align the tensors to 64 bytes in the file, and so in memory when mapped.
  const std::size_t end = kLengthBytes + json.size();
  json.append((kHeaderAlignmentBytes - end % kHeaderAlignmentBytes) % kHeaderAlignmentBytes, ' ');
  if (json.size() > kMaxFileHeaderBytes) {
    return error(ErrorCode::limit_exceeded, "the header would have " + std::to_string(json.size()) +
                                                " bytes; legal are up to " +
                                                std::to_string(kMaxFileHeaderBytes));
  }
  const std::uint64_t length = json.size();
  std::vector<std::byte> bytes(kLengthBytes + json.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + kLengthBytes, json.data(), json.size());
  return bytes;
}

}  // namespace tendon::v0
