// SPDX-License-Identifier: Apache-2.0
// `tendon topic list`, `tendon topic info` and `tendon node list`: what nodes have announced.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <utility>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

std::string qos_of(const Qos& qos) {
  return fmt::format("keep_last({}), {}{}", qos.history.samples,
                     qos.overflow == Overflow::block ? "block" : "drop_oldest",
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
  document.emplace_back("overflow",
                        entity.qos.overflow == Overflow::block ? "block" : "drop_oldest");
  document.emplace_back("priority",
                        entity.qos.priority == Priority::control ? "control" : "normal");
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

void print_keys(const FabricNode& fabric, const TopicOptions& options) {
  Value::List keys;
  std::string last;
  for (const EntityInfo& entity : fabric.node.publishers()) {
    if (entity.key == last) continue;
    last = entity.key;
    if (options.format == Format::json) {
      keys.emplace_back(entity.key);
    } else {
      print_line(shown(entity.key));
    }
  }
  if (options.format == Format::json) print_json({{"topics", std::move(keys)}});
}

void print_nodes(const FabricNode& fabric, const TopicOptions& options) {
  Value::List names;
  for (const std::string& name : fabric.node.nodes()) {
    if (name == fabric.node.name()) continue;
    if (options.format == Format::json) {
      names.emplace_back(name);
    } else {
      print_line(shown(name));
    }
  }
  if (options.format == Format::json) print_json({{"nodes", std::move(names)}});
}

/// What is known once discovery has said all.
template <class Print>
int list(const TopicOptions& options, std::string_view verb, Print print) {
  Interrupt interrupt;
  const auto fail = [&](const Error& error) {
    const int code = report(error, options.format);
    return interrupt.requested() ? interrupt.exit_code() : code;
  };
  if (auto started = interrupt.start(); !started) return fail(started.error());
  std::optional<KeyExpression> keys;
  if (!options.key.empty()) {
    auto read = KeyExpression::canonize(options.key);
    if (!read) return fail(read.error());
    keys = *std::move(read);
  }
  auto fabric = join_fabric(options, verb);
  if (!fabric) return fail(fabric.error());
  if (auto known = wait_for_picture(*fabric, options, interrupt); !known)
    return fail(known.error());
  print(*fabric, keys);
  return 0;
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
