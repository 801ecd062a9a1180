// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string_view>

#include "cli/fabric_node.hpp"
#include "cli/output.hpp"
#include "cli/picture.hpp"
#include "core/text.hpp"

namespace tendon::cli {
namespace {

/// How many bytes of a plain peer's sample are shown, as text and as hexadecimal digits.
constexpr std::size_t kShownTextBytes = 4096;
constexpr std::size_t kShownHexBytes = 16;

/// IEEE 754 binary16.
double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double value = 0;
  if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else if (exponent == 0x1f) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = std::ldexp(fraction + 0x400, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Counts the elements; `read` turns a stored element into a number.
template <class Stored, class Read>
std::optional<TensorStatistics> count(const Tensor& tensor, Read read) {
  TensorStatistics statistics{.min = std::numeric_limits<double>::infinity(),
                              .max = -std::numeric_limits<double>::infinity()};
  double sum = 0;
  std::uint64_t numbers = 0;
  const std::byte* at = tensor.data();
  for (std::int64_t i = 0; i < tensor.element_count(); ++i, at += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, at, sizeof stored);
    const double value = read(stored);
    if (std::isnan(value)) continue;
    statistics.min = std::min(statistics.min, value);
    statistics.max = std::max(statistics.max, value);
    sum += value;
    ++numbers;
  }
  if (numbers == 0) return std::nullopt;
  statistics.mean = sum / static_cast<double>(numbers);
  return statistics;
}

template <class T>
std::optional<TensorStatistics> count(const Tensor& tensor) {
  return count<T>(tensor, [](T value) { return static_cast<double>(value); });
}

std::string text_of(const Value& value) {
  std::ostringstream text;
  text << value;
  return shown(text.str());
}

std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.shape();
  return text.str();
}

std::string line_of(std::string_view path, const Tensor& tensor) {
  std::string line =
      fmt::format("  {}  {} {}", shown(path), to_string(tensor.dtype()), shape_of(tensor));
  const auto statistics = statistics_of(tensor);
  if (!statistics) return line;
  return line + (tensor.element_count() == 1
                     ? fmt::format("  {:g}", statistics->min)
                     : fmt::format("  min {:g}  mean {:g}  max {:g}", statistics->min,
                                   statistics->mean, statistics->max));
}

/// Whether the bytes are text, according to the encoding that the sender states and to the bytes
/// themselves.
bool is_text(std::string_view encoding, std::string_view bytes) {
  const std::string_view type = encoding.substr(0, encoding.find(';'));
  const bool is_said = type.starts_with("text/") || type == "application/json" ||
                       type.ends_with("+json") || type == "application/yaml" ||
                       type == "application/xml" || type == "zenoh/string";
  return is_said && detail::is_utf8(bytes);
}

/// The part of UTF-8 text that is shown, in whole characters.
std::string_view front_of(std::string_view text) {
  std::size_t size = std::min(text.size(), kShownTextBytes);
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

/// Indents each line of the text.
std::string lines_of_text(std::string_view text) {
  std::string lines;
  std::string_view rest = front_of(text);
  const std::size_t left_out = text.size() - rest.size();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    lines += "\n  " + shown(line);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  if (left_out > 0) lines += fmt::format("\n  ... {} bytes more", left_out);
  return lines;
}

/// Describes a sample of a plain peer: the encoding that it chose, and its bytes.
std::string describe_plain_bytes(const Sample& sample) {
  const Bytes bytes = sample.bytes.bytes();
  std::string text = fmt::format("\n  {}  {} bytes", shown(sample.encoding), bytes.size());
  if (is_text(sample.encoding, as_text(bytes))) return text + lines_of_text(as_text(bytes));
  if (bytes.empty()) return text;
  return text + "  " + detail::to_hex(bytes.first(std::min(bytes.size(), kShownHexBytes))) +
         (bytes.size() > kShownHexBytes ? "..." : "");
}

Value::Map document_of(const Ended& ended) {
  return {{"reason", to_string(ended.reason)},
          {"last_seen", ended.last_seen},
          {"last_published", ended.last_published},
          {"exact", ended.exact}};
}

/// The lines of the values, with a line break in front of each.
std::string lines_of_values(const TensorDict& tensors) {
  std::string text;
  if (const auto& values = tensors.values())
    for (const auto& [path, value] : values->as_map())
      text += fmt::format("\n  {}  {}", shown(path), text_of(value));
  return text;
}

}  // namespace

std::optional<TensorStatistics> statistics_of(const Tensor& tensor) {
  if (!tensor.is_contiguous() || tensor.device() != cpu()) return std::nullopt;
  switch (tensor.dtype()) {
    case DType::boolean:
    case DType::u8:
      return count<std::uint8_t>(tensor);
    case DType::i8:
      return count<std::int8_t>(tensor);
    case DType::u16:
      return count<std::uint16_t>(tensor);
    case DType::i16:
      return count<std::int16_t>(tensor);
    case DType::u32:
      return count<std::uint32_t>(tensor);
    case DType::i32:
      return count<std::int32_t>(tensor);
    case DType::u64:
      return count<std::uint64_t>(tensor);
    case DType::i64:
      return count<std::int64_t>(tensor);
    case DType::f32:
      return count<float>(tensor);
    case DType::f64:
      return count<double>(tensor);
    case DType::f16:
      return count<std::uint16_t>(tensor, from_f16);
    case DType::bf16:
      return count<std::uint16_t>(tensor, from_bf16);
    default:
      return std::nullopt;
  }
}

std::string describe_tensors(const TensorDict& tensors) {
  std::string text;
  for (const auto& [path, tensor] : tensors) text += '\n' + line_of(path, tensor);
  return text + lines_of_values(tensors);
}

Value::Map tensors_document(const TensorDict& dict) {
  Value::Map tensors;
  for (const auto& [path, tensor] : dict) {
    Value::List shape;
    for (const std::int64_t length : tensor.shape()) shape.emplace_back(length);
    Value::Map entry{{"dtype", to_string(tensor.dtype())}, {"shape", std::move(shape)}};
    if (const auto statistics = statistics_of(tensor)) {
      entry.emplace_back("min", statistics->min);
      entry.emplace_back("mean", statistics->mean);
      entry.emplace_back("max", statistics->max);
    }
    tensors.emplace_back(path, std::move(entry));
  }
  Value::Map document{{"size_bytes", dict.size_bytes()}, {"tensors", std::move(tensors)}};
  if (const auto& values = dict.values()) document.emplace_back("values", *values);
  return document;
}

void print_gaps(const Sample& sample) {
  for (const Gap& gap : sample.gaps) {
    std::ostringstream line;
    line << gap;
    print_line(line.str());
  }
}

void print_sample(const Sample& sample, Pictures pictures) {
  print_gaps(sample);
  std::string text = sample.plain ? shown(sample.key) + "  a plain Zenoh peer"
                                  : fmt::format("{}  {} #{}", shown(sample.key),
                                                shown(sample.publisher), sample.sequence);
  if (sample.age)
    text += "  age " + format_seconds(static_cast<double>(sample.age->count()) * 1e-9);
  if (!sample.tensors) {
    return print_line(text + (sample.plain
                                  ? describe_plain_bytes(sample)
                                  : fmt::format("\n  {} bytes", sample.bytes.size_bytes())));
  }
  if (pictures == Pictures::none) return print_line(text + describe_tensors(*sample.tensors));
  print_line(text);
  for (const auto& [path, tensor] : *sample.tensors) {
    print_line(line_of(path, tensor));
    if (const auto picture = picture_of(tensor)) print_text(*picture);
  }
  if (const std::string values = lines_of_values(*sample.tensors); !values.empty())
    print_line(values.substr(1));
}

Value::Map sample_document(const Sample& sample) {
  Value::List gaps;
  for (const Gap& gap : sample.gaps) {
    gaps.push_back(
        Value::Map{{"first", gap.first}, {"last", gap.last}, {"reason", to_string(gap.reason)}});
  }
  Value::Map document{{"key", sample.key},
                      {"publisher", sample.publisher},
                      {"entity", sample.entity},
                      {"incarnation", sample.incarnation}};
  if (sample.ended) {
    document.emplace_back("ended", document_of(*sample.ended));
    document.emplace_back("gaps", std::move(gaps));
    return document;
  }
  document.emplace_back("sequence", sample.sequence);
  document.emplace_back("stamp_ns", sample.stamp);
  document.emplace_back("gaps", std::move(gaps));
  if (sample.plain) {
    document.emplace_back("plain", true);
    document.emplace_back("encoding", sample.encoding);
  }
  if (sample.age) document.emplace_back("age_ns", sample.age->count());
  if (!sample.tensors) {
    const Bytes bytes = sample.bytes.bytes();
    document.emplace_back("size_bytes", bytes.size());
    if (sample.plain && is_text(sample.encoding, as_text(bytes))) {
      document.emplace_back("text", std::string(front_of(as_text(bytes))));
    } else if (sample.plain) {
      document.emplace_back("hex",
                            detail::to_hex(bytes.first(std::min(bytes.size(), kShownHexBytes))));
    }
    return document;
  }
  for (auto& entry : tensors_document(*sample.tensors)) document.push_back(std::move(entry));
  return document;
}

}  // namespace tendon::cli
