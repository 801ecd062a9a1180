#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the #includes of include/, src/ and cli/ and holds them against the table of layers.

check_layers.py [ROOT]        prints file:line and the rule that is broken; exit code 1 if any is
check_layers.py --self-test   plants one fault per rule and expects each to be reported

At most two modules (a header with its source) include each other, by however many steps: a class and what it hides.
tools/house_debts.txt has the larger circles of today, which may only become smaller.
"""

import re
import sys
from pathlib import Path

import checker
from checker import DEBTS

# From the bottom up: a layer may include itself and those before it. docs/architecture.md has the
# reasons. A folder that is not listed is a fault, so that a new layer is a decision.
LAYERS = ["core", "observe", "memory", "cuda", "tensor", "secure", "session", "transport", "runtime",
          "channel", "fabric", "pipe", "group", "control"]
# They meet in the layers below them, and in programs.
SIBLINGS = {"fabric", "pipe", "group"}
# Folders of a layer in src/, from the bottom up: likewise. A file above them may include all.
ROOMS = {"control": ["flows", "machine", "relay"],
         "fabric": ["keys", "samples", "zenoh", "ways", "plain", "ports", "discovery", "topics", "calls", "nodes"],
         "group": ["operands", "reduce", "membership", "boards", "scripts", "epochs", "messages"]}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Standard and POSIX headers, the only ones besides our own that a public header may name.
SYSTEM = re.compile(r"[a-z_0-9]+|(sys|netinet|arpa|linux)/[a-z_0-9]+\.h|[a-z]+\.h")
CLI_ONLY = ("CLI/", "fmt/")
CIRCLE_MAX = 2


def layer_of(path: str) -> str:
    """'memory' of 'memory/pool.hpp'; '' for a file above the layers, such as the umbrella header."""
    return path.split("/")[0] if "/" in path else ""


def room_of(path: str) -> str:
    """'boards' of 'group/boards/board.hpp'; '' for a file above the rooms of its layer."""
    return path.split("/")[1] if path.count("/") > 1 else ""


def fault_of_rooms(layer: str, room: str, wanted: str) -> str | None:
    """The rule that a file of `room` breaks by including one of `wanted`, both of `layer`."""
    rooms = ROOMS[layer]
    if wanted not in ["", *rooms]:
        return f"'{wanted}' is not a room of {layer}"
    if room != "" and (wanted == "" or rooms.index(wanted) > rooms.index(room)):
        return f"{layer}/{room} may not include {layer}/{wanted}: rooms point one way"
    return None


def fault_of(place: str, layer: str, room: str, quote: str, target: str) -> str | None:
    """The rule that `#include target` breaks in a file of `layer` below include/, src/ or cli/."""
    ours = target.removeprefix("tendon/") if target.startswith("tendon/") else None
    if place == "include" and quote == '"':
        return "a public header includes only <...>: private files are not installed"
    if place == "include" and ours is None and not SYSTEM.fullmatch(target):
        return "no third-party header in include/"
    if place == "cli":
        return None
    if quote == "<" and target.startswith(CLI_ONLY):
        return "only cli/ uses CLI11 and fmt"
    if target.endswith(".pb.h"):  # what protoc makes of proto/
        return None if place == "src" and layer == "control" else "only src/control includes what protoc makes"
    if quote == '"':
        if "/" not in target or target.startswith("."):
            return 'a private header is included by its layer: "memory/segment.hpp"'
        ours = target
    if ours is None or (place == "include" and layer == ""):
        return None
    wanted = layer_of(ours)
    if wanted == "":
        return "the umbrella header is for programs, not for the library"
    if wanted not in LAYERS:
        return f"'{wanted}' is not a layer"
    if wanted != layer and {wanted, layer} <= SIBLINGS:
        return f"{layer} may not include {wanted}: they stand side by side"
    if LAYERS.index(wanted) > LAYERS.index(layer):
        return f"{layer} may not include {wanted}: dependency only downwards"
    if quote == '"' and wanted == layer and layer in ROOMS:
        return fault_of_rooms(layer, room, room_of(ours))
    return None


def module_of(path: str) -> str:
    """'pipe/pipe' of both 'include/tendon/pipe/pipe.hpp' and 'src/pipe/pipe.cpp'."""
    return re.sub(r"^(include/tendon|src)/|\.(hpp|cpp)$", "", path)


def modules_of(root: Path) -> dict[str, set[str]]:
    """Which modules each one includes."""
    texts = {path.relative_to(root).as_posix(): path.read_text()
             for folder in ("include/tendon", "src", "cli", "python/bindings") for path in (root / folder).rglob("*.[hc]pp")}
    modules: dict[str, set[str]] = {module_of(name): set() for name in texts}
    for name, text in texts.items():
        module = module_of(name)
        for line in text.splitlines():
            if found := INCLUDE.match(line):
                wanted = found[2].removeprefix("tendon/").removesuffix(".hpp")
                places = (wanted, f"python/{wanted}", f"{name.rpartition('/')[0]}/{wanted}")
                modules[module] |= {place for place in places if place in modules and place != module}
    return modules


def circles_of(modules: dict[str, set[str]]) -> list[set[str]]:
    """Modules that include each other, by however many steps: the parts that Tarjan's algorithm finds, of more than two."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    circles: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        waiting.append(module)
        for wanted in sorted(modules[module]):
            if wanted not in order:
                visit(wanted)
            if wanted in waiting:
                lowest[module] = min(lowest[module], lowest[wanted])
        if lowest[module] == order[module]:
            at = waiting.index(module)
            if len(waiting) - at > CIRCLE_MAX:
                circles.append(set(waiting[at:]))
            del waiting[at:]

    sys.setrecursionlimit(10_000)
    for module in sorted(modules):
        if module not in order:
            visit(module)
    return circles


def check_circles(root: Path) -> list[str]:
    debts = [set(modules) for kind, *modules in checker.debts_of(root) if kind == "circle"]
    faults = []
    for circle in circles_of(modules_of(root)):
        debt = next((each for each in debts if circle <= each), None)
        if debt is None:
            faults.append(f"{min(circle)}:1: these include each other: {' '.join(sorted(circle))}")
        else:
            debts.remove(debt)
            if circle < debt:
                faults.append(f"{DEBTS}:1: no longer in their circle, delete them: {' '.join(sorted(debt - circle))}")
    return faults + [f"{DEBTS}:1: no circle any more, delete it: {' '.join(sorted(debt))}" for debt in debts]


def check(root: Path) -> list[str]:
    faults = check_circles(root)
    for place, base in (("include", root / "include/tendon"), ("src", root / "src"),
                        ("cli", root / "cli")):
        for file in sorted([*base.rglob("*.hpp"), *base.rglob("*.cpp")]):
            name = file.relative_to(root)
            path = file.relative_to(base).as_posix()
            layer = layer_of(path)
            room = room_of(path)
            if place != "cli" and layer not in LAYERS and not (place == "include" and layer == ""):
                faults.append(f"{name}:1: '{layer}' is not a layer")
                continue
            if place == "src" and layer in ROOMS and room not in ["", *ROOMS[layer]]:
                faults.append(f"{name}:1: '{room}' is not a room of {layer}")
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                found = INCLUDE.match(line)
                fault = found and fault_of(place, layer, room, *found.groups())
                if fault:
                    faults.append(f"{name}:{number}: {fault}")
    return faults


def self_test() -> None:
    good = {
        "include/tendon/tendon.hpp": "#include <tendon/pipe/pipe.hpp>",
        "include/tendon/tensor/tensor.hpp": "#include <tendon/memory/pool.hpp>\n#include <vector>",
        "src/group/boards/board.cpp": '#include "group/reduce/reduce.hpp"\n'
                                      "#include <tendon/group/group.hpp>",
        "src/group/group.cpp": '#include "group/messages/stage.hpp"',
        "src/pipe/pipe.cpp": '#include "pipe/x.hpp"\n#include <nlohmann/json.hpp>',
        "cli/main.cpp": '#include "commands.hpp"\n#include <CLI/CLI.hpp>',
        "src/control/relay/word.hpp": '#include "tendon/v1/control.pb.h"\n#include <tendon/pipe/pipe.hpp>',
    }
    bad = [
        ("src/memory/pool.cpp", '#include "tensor/tensor.hpp"', "memory may not include tensor"),
        ("src/core/error.cpp", "#include <tendon/observe/log.hpp>", "core may not include observe"),
        ("src/pipe/pipe.cpp", '#include "group/membership/agreement.hpp"', "pipe may not include group"),
        ("src/group/membership/agreement.cpp", '#include "pipe/pipe_core.hpp"', "group may not include pipe"),
        ("src/pipe/pipe.cpp", '#include "fabric/keys/announcement.hpp"', "pipe may not include fabric"),
        ("src/fabric/a.cpp", "#include <tendon/group/group.hpp>", "fabric may not include group"),
        ("src/channel/a.hpp", '#include "fabric/keys/announcement.hpp"', "channel may not include fabric"),
        ("src/channel/a.hpp", '#include "pipe/pipe_core.hpp"', "channel may not include pipe"),
        ("src/runtime/a.hpp", '#include "channel/window.hpp"', "runtime may not include channel"),
        ("include/tendon/session/hello.hpp", "#include <tendon/transport/path.hpp>",
         "session may not include transport"),
        ("src/secure/a.hpp", '#include "transport/stream/byte_stream.hpp"', "secure may not include transport"),
        ("include/tendon/core/a.hpp", '#include "core/a.hpp"', "a public header includes only"),
        ("include/tendon/core/a.hpp", "#include <nlohmann/json.hpp>", "no third-party header"),
        ("include/tendon/tendon.hpp", "#include <openssl/evp.h>", "no third-party header"),
        ("src/core/a.cpp", '#include "a.hpp"', "a private header is included by its layer"),
        ("src/core/a.cpp", "#include <fmt/format.h>", "only cli/ uses"),
        ("src/core/a.cpp", "#include <tendon/tendon.hpp>", "the umbrella header is for programs"),
        ("src/group/a.cpp", "#include <tendon/control/worker.hpp>", "group may not include control"),
        ("src/group/a.cpp", '#include "tendon/v1/control.pb.h"', "only src/control includes"),
        ("src/util/a.cpp", "", "'util' is not a layer"),
        ("src/group/util/a.cpp", "", "'util' is not a room of group"),
        ("src/group/boards/board.cpp", '#include "group/util/a.hpp"', "'util' is not a room"),
        ("src/group/boards/board.cpp", '#include "group/scripts/script.hpp"', "rooms point one way"),
        ("src/group/boards/board.cpp", '#include "group/group.hpp"', "rooms point one way"),
        ("src/control/machine/a.hpp", '#include "control/relay/word.hpp"', "rooms point one way"),
        ("src/core/a.cpp", '#include "util/a.hpp"', "'util' is not a layer"),
    ]
    with checker.tree(good) as root:
        checker.expect_each(check, root, [(name, "\n" + text, rule) for name, text, rule in bad])
        ring = {name: {"a/b": "a/c", "a/c": "a/d", "a/d": "a/b"}[name] for name in ("a/b", "a/c", "a/d")}
        assert circles_of({name: {wanted} for name, wanted in ring.items()}) == [set(ring)]
        assert circles_of({"a/b": {"a/c"}, "a/c": {"a/b"}}) == [], "a class and what it hides"
        for module, wanted in (("a", "b"), ("b", "c"), ("c", "a")):
            checker.write(root, f"src/core/{module}.hpp", "")
            checker.write(root, f"src/core/{module}.cpp", f'#include "core/{wanted}.hpp"\n')
        for debts, rule in (("", "include each other: core/a core/b core/c"),
                            ("circle core/a core/b core/c core/d\n", "delete them: core/d"),
                            ("circle core/a core/b core/c\ncircle core/x core/y core/z\n", "no circle any more")):
            checker.write(root, DEBTS, debts)
            checker.expect(check, root, rule)
    print(f"each of {len(bad) + 3} planted faults was reported")


if __name__ == "__main__":
    sys.exit(checker.run(check, self_test, "layers: every include points downwards"))
