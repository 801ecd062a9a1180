// SPDX-License-Identifier: Apache-2.0
// `tendon topic list`, `tendon topic info` and `tendon node list`: what nodes have announced.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <utility>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

std::string qos_of(const Qos& qos) {
  return fmt::format("keep_last({}), {}{}", qos.history.samples, to_string(qos.overflow),
                     qos.priority == Priority::control ? ", control" : "");
}

Value::Map document_of(const EntityInfo& entity) {
  Value::Map document{{"key", entity.key}, {"node", entity.node}};
  if (entity.schema) document.emplace_back("schema", to_string(*entity.schema));
  return document;
}

Value::Map document_of_publisher(const EntityInfo& entity) {
  Value::Map document = document_of(entity);
  document.emplace_back("history", entity.qos.history.samples);
  document.emplace_back("overflow", to_string(entity.qos.overflow));
  document.emplace_back("priority", to_string(entity.qos.priority));
  return document;
}

/// Only what `keys` takes in: every key without them.
bool concerns(const std::optional<KeyExpression>& keys, const EntityInfo& entity) {
  if (!keys) return true;
  const auto own = KeyExpression::parse(entity.key);
  return own && keys->intersects(*own);
}

void print_entities(const FabricNode& fabric, const std::optional<KeyExpression>& keys,
                    const TopicOptions& options) {
  if (options.format == Format::json) {
    Value::List publishers;
    for (const EntityInfo& entity : fabric.node.publishers())
      if (concerns(keys, entity)) publishers.push_back(document_of_publisher(entity));
    Value::List subscribers;
    for (const EntityInfo& entity : fabric.node.subscribers())
      if (concerns(keys, entity)) subscribers.push_back(document_of(entity));
    print_json({{"domain", options.domain},
                {"publishers", std::move(publishers)},
                {"subscribers", std::move(subscribers)}});
    return;
  }
  const auto schema = [](const EntityInfo& entity) {
    return entity.schema ? to_string(*entity.schema).substr(0, 12) : std::string("any");
  };
  for (const EntityInfo& entity : fabric.node.publishers()) {
    if (!concerns(keys, entity)) continue;
    print_line(fmt::format("{}  published by {}  {}  schema {}", shown(entity.key),
                           shown(entity.node), qos_of(entity.qos), schema(entity)));
  }
  for (const EntityInfo& entity : fabric.node.subscribers()) {
    if (!concerns(keys, entity)) continue;
    print_line(fmt::format("{}  subscribed to by {}  schema {}", shown(entity.key),
                           shown(entity.node), schema(entity)));
  }
}

/// A line each, or one document with a list of this name.
void print_names(const std::vector<std::string>& names, const char* list, Format format) {
  if (format == Format::json) return print_json({{list, Value::List(names.begin(), names.end())}});
  for (const std::string& name : names) print_line(shown(name));
}

void print_keys(const FabricNode& fabric, const TopicOptions& options) {
  const std::vector<EntityInfo> publishers = fabric.node.publishers();
  std::vector<std::string> keys;
  keys.reserve(publishers.size());
  for (const EntityInfo& entity : publishers) keys.push_back(entity.key);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // they come sorted
  print_names(keys, "topics", options.format);
}

void print_nodes(const FabricNode& fabric, const TopicOptions& options) {
  std::vector<std::string> names = fabric.node.nodes();
  std::erase(names, fabric.node.name());
  print_names(names, "nodes", options.format);
}

/// What is known once discovery has said all.
template <class Print>
int list(const TopicOptions& options, std::string_view verb, Print print) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    std::optional<KeyExpression> keys;
    if (!options.key.empty()) {
      TENDON_TRY(read, KeyExpression::canonize(options.key));
      keys = std::move(read);
    }
    TENDON_TRY(fabric, join_fabric(options, verb));
    TENDON_CHECK(wait_for_picture(fabric, options, interrupt));
    print(fabric, keys);
    return {};
  });
}

}  // namespace

int run_topic_list(const TopicOptions& options) {
  return list(options, "topic list",
              [&](const FabricNode& fabric, const auto&) { print_keys(fabric, options); });
}

int run_topic_info(const TopicOptions& options) {
  return list(options, "topic info", [&](const FabricNode& fabric, const auto& keys) {
    print_entities(fabric, keys, options);
  });
}

int run_node_list(const TopicOptions& options) {
  return list(options, "node list",
              [&](const FabricNode& fabric, const auto&) { print_nodes(fabric, options); });
}

}  // namespace tendon::cli
