// SPDX-License-Identifier: Apache-2.0
// `tendon topic list`, `tendon topic info`, `tendon node list` and `tendon node info`: the
// announcements of nodes, and how one of them is reached.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <utility>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/fabric_talk.hpp"
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

/// Whether `keys` includes the key of the entity; without `keys` every key counts.
bool concerns(const std::optional<KeyExpression>& keys, const EntityInfo& entity) {
  if (!keys) return true;
  const auto own = KeyExpression::parse(entity.key);
  return own && keys->intersects(*own);
}

/// The publishers and subscribers for which `concerns` is true.
template <class Concerns>
Value::Map document_of_entities(const FabricNode& fabric, Concerns concerns) {
  Value::List publishers;
  for (const EntityInfo& entity : fabric.node.publishers())
    if (concerns(entity)) publishers.push_back(document_of_publisher(entity));
  Value::List subscribers;
  for (const EntityInfo& entity : fabric.node.subscribers())
    if (concerns(entity)) subscribers.push_back(document_of(entity));
  return {{"publishers", std::move(publishers)}, {"subscribers", std::move(subscribers)}};
}

template <class Concerns>
void print_lines_of_entities(const FabricNode& fabric, std::string_view indent, Concerns concerns) {
  const auto schema = [](const EntityInfo& entity) {
    return entity.schema ? to_string(*entity.schema).substr(0, 12) : std::string("any");
  };
  for (const EntityInfo& entity : fabric.node.publishers()) {
    if (!concerns(entity)) continue;
    print_line(fmt::format("{}{}  published by {}  {}  schema {}", indent, shown(entity.key),
                           shown(entity.node), qos_of(entity.qos), schema(entity)));
  }
  for (const EntityInfo& entity : fabric.node.subscribers()) {
    if (!concerns(entity)) continue;
    print_line(fmt::format("{}{}  subscribed to by {}  schema {}", indent, shown(entity.key),
                           shown(entity.node), schema(entity)));
  }
}

/// The published keys that have a subscriber through Zenoh; nothing where that cannot be known.
std::optional<std::vector<std::string>> keys_put_by_zenoh(FabricNode& fabric,
                                                          const std::optional<KeyExpression>& keys,
                                                          const TopicOptions& options) {
  std::vector<std::string> put;
  for (const EntityInfo& entity : fabric.node.publishers()) {
    if (!concerns(keys, entity) || (!put.empty() && put.back() == entity.key)) continue;
    const auto plain = fabric.node.has_plain_subscribers(entity.key, options.patience());
    if (!plain) return std::nullopt;
    if (*plain) put.push_back(entity.key);
  }
  return put;
}

void print_entities(FabricNode& fabric, const std::optional<KeyExpression>& keys,
                    const TopicOptions& options) {
  const auto meant = [&](const EntityInfo& entity) { return concerns(keys, entity); };
  const auto plain = keys_put_by_zenoh(fabric, keys, options);
  if (options.format != Format::json) {
    print_lines_of_entities(fabric, "", meant);
    if (!plain) return;
    for (const std::string& key : *plain)
      print_line(fmt::format(
          "{}  subscribed to by Zenoh: publishers put their newest samples there", shown(key)));
    return;
  }
  Value::Map document{{"domain", fabric.node.domain()}};
  for (auto& [list, entities] : document_of_entities(fabric, meant))
    document.emplace_back(list, std::move(entities));
  if (plain) document.emplace_back("plain_subscribed", Value::List(plain->begin(), plain->end()));
  print_json(std::move(document));
}

/// Whether the entity belongs to this node. Nodes that share a Context are announced together:
/// "language+motor".
bool is_of_node(const EntityInfo& entity, std::string_view name) {
  for (std::string_view rest = entity.node;;) {
    const std::size_t end = rest.find('+');
    if (rest.substr(0, end) == name) return true;
    if (end == std::string_view::npos) return entity.node == name;
    rest.remove_prefix(end + 1);
  }
}

Value::Map document_of_link(const PeerStats& stats) {
  return {{"context", stats.context.to_string()},
          {"incarnation", std::to_string(stats.incarnation)},
          {"path", std::string(to_string(stats.path.kind))},
          {"why", stats.path.reason},
          {"messages_sent", stats.messages_sent},
          {"messages_received", stats.messages_received},
          {"bytes_sent", stats.bytes_sent},
          {"bytes_received", stats.bytes_received},
          {"dropped_messages", stats.dropped_messages},
          {"stray_frames", stats.stray_frames},
          {"refused_questions", stats.refused_questions},
          {"silence_s", std::chrono::duration<double>(stats.silence).count()}};
}

/// `stats`: an error where there is no link to it from here.
void print_node(const FabricNode& fabric, const Result<PeerStats>& stats,
                const TopicOptions& options) {
  const auto meant = [&](const EntityInfo& entity) { return is_of_node(entity, options.node); };
  if (options.format == Format::json) {
    Value::Map document{{"node", options.node}};
    if (stats) document.emplace_back("link", document_of_link(*stats));
    for (auto& [list, entities] : document_of_entities(fabric, meant))
      document.emplace_back(list, std::move(entities));
    return print_json(std::move(document));
  }
  if (stats) {
    print_line(fmt::format("{}  context {}", shown(options.node), stats->context.to_string()));
    print_line(fmt::format("  reached by {}  received {} messages, {}",
                           shown(stats->path.to_string()), stats->messages_received,
                           format_bytes(static_cast<double>(stats->bytes_received))));
    if (stats->stray_frames != 0) {
      print_line(fmt::format("  {} frames of strangers came to this end and were dropped",
                             stats->stray_frames));
    }
  } else {
    print_line(fmt::format("{}  no link from here", shown(options.node)));
  }
  print_lines_of_entities(fabric, "  ", meant);
}

/// Prints a line for each name, or one document with a list of this name.
void print_names(const std::vector<std::string>& names, const char* list, Format format) {
  if (format == Format::json) return print_json({{list, Value::List(names.begin(), names.end())}});
  for (const std::string& name : names) print_line(shown(name));
}

/// Says who refuses the command, which a list does not show, or where no node was found.
void say_what_is_behind(const FabricNode& fabric, const TopicOptions& options) {
  if (fabric.node.nodes().size() <= 1) return say_nobody_found(fabric, options);
  FabricTalk talk;
  say_who_refuses(fabric, options, talk);
}

void print_keys(const FabricNode& fabric, const TopicOptions& options) {
  const std::vector<EntityInfo> publishers = fabric.node.publishers();
  std::vector<std::string> keys;
  keys.reserve(publishers.size());
  for (const EntityInfo& entity : publishers) keys.push_back(entity.key);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // the keys are sorted
  print_names(keys, "topics", options.format);
  say_what_is_behind(fabric, options);
}

void print_nodes(const FabricNode& fabric, const TopicOptions& options) {
  std::vector<std::string> names = fabric.node.nodes();
  std::erase(names, fabric.node.name());
  print_names(names, "nodes", options.format);
  say_what_is_behind(fabric, options);
}

/// Prints the state after discovery has reported all.
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
  if (options.detail == TopicDetail::why) return run_topic_why(options);
  return list(options, "topic info",
              [&](FabricNode& fabric, const auto& keys) { print_entities(fabric, keys, options); });
}

int run_node_list(const TopicOptions& options) {
  return list(options, "node list",
              [&](const FabricNode& fabric, const auto&) { print_nodes(fabric, options); });
}

int run_node_info(const TopicOptions& options) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    TENDON_TRY(fabric, join_fabric(options, "node info"));
    TENDON_CHECK(wait_for_picture(fabric, options, interrupt));
    const auto stats = fabric.node.peer_stats(options.node);
    const auto nodes = fabric.node.nodes();
    if (!stats && std::ranges::find(nodes, options.node) == nodes.end()) return stats.error();
    print_node(fabric, stats, options);
    return {};
  });
}

}  // namespace tendon::cli
