#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the #includes of include/, src/ and cli/ and holds them against the table of layers.

check_layers.py [ROOT]        prints file:line and the rule that is broken; exit code 1 if any is
check_layers.py --self-test   plants one fault per rule and expects each to be reported
"""

import re
import sys
import tempfile
from pathlib import Path

# From the bottom up: a layer may include itself and those before it. docs/architecture.md has the
# reasons. A folder that is not listed is a fault, so that a new layer is a decision.
LAYERS = ["core", "observe", "memory", "tensor", "session", "transport", "runtime", "channel",
          "fabric", "pipe", "group", "control"]
# They meet in the layers below them, and in programs.
SIBLINGS = {"fabric", "pipe", "group"}
# Folders of a layer in src/, from the bottom up: likewise. A file above them may include all.
ROOMS = {"group": ["operands", "reduce", "membership", "boards", "scripts", "epochs", "messages"]}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Standard and POSIX headers, the only ones besides our own that a public header may name.
SYSTEM = re.compile(r"[a-z_0-9]+|(sys|netinet|arpa|linux)/[a-z_0-9]+\.h|[a-z]+\.h")
CLI_ONLY = ("CLI/", "fmt/")


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


def check(root: Path) -> list[str]:
    faults = []
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
        "src/control/word.hpp": '#include "tendon/v1/control.pb.h"\n#include <tendon/pipe/pipe.hpp>',
    }
    bad = [
        ("src/memory/pool.cpp", '#include "tensor/tensor.hpp"', "memory may not include tensor"),
        ("src/core/error.cpp", "#include <tendon/observe/log.hpp>", "core may not include observe"),
        ("src/pipe/pipe.cpp", '#include "group/membership/agreement.hpp"', "pipe may not include group"),
        ("src/group/membership/agreement.cpp", '#include "pipe/pipe_core.hpp"', "group may not include pipe"),
        ("src/pipe/pipe.cpp", '#include "fabric/announcement.hpp"', "pipe may not include fabric"),
        ("src/fabric/a.cpp", "#include <tendon/group/group.hpp>", "fabric may not include group"),
        ("src/channel/a.hpp", '#include "fabric/announcement.hpp"', "channel may not include fabric"),
        ("src/channel/a.hpp", '#include "pipe/pipe_core.hpp"', "channel may not include pipe"),
        ("src/runtime/a.hpp", '#include "channel/window.hpp"', "runtime may not include channel"),
        ("include/tendon/session/hello.hpp", "#include <tendon/transport/path.hpp>",
         "session may not include transport"),
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
        ("src/core/a.cpp", '#include "util/a.hpp"', "'util' is not a layer"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in good.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert check(root) == [], check(root)
        for name, text, rule in bad:
            file = root / name
            before = file.read_text() if file.exists() else None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n" + text)
            faults = check(root)
            assert len(faults) == 1 and faults[0].startswith(name) and rule in faults[0], \
                f"planted {name}: {text!r}, expected {rule!r}, reported {faults}"
            file.unlink() if before is None else file.write_text(before)
    print(f"each of {len(bad)} planted faults was reported")


def main() -> int:
    if "--self-test" in sys.argv:
        self_test()
        return 0
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    faults = check(root)
    print("\n".join(faults) if faults else "layers: every include points downwards")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
