#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of encrypted links, on loopback and on links of 1 and 10 Gbit/s: a part of docs/benchmarks.md.

`tendon bench secure` measures, each comparison in rounds of one run. Limited links are network namespaces, which
need root. `make bench` runs this after tools/bench.sh, which builds the programs.
"""

import datetime
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from bench import (ROOT, add_build_dir, command_line, compiler, host_card, makes_document, number, parse, say, size_text,
                   table, tell_load, write_document)

TITLE = "Secure links"
LEAST_RATE = 0.95  # of plaintext, from 1 MiB on, on a limited link
MOST_LATENCY = 1.05  # of plaintext, both ends asleep
MOST_CPU = 1.15  # of plaintext and one pass of the sealer, on loopback
TIME_LIMIT_S = 900
TLS = {"records": "plaintext", "ssl": "socket"}

# The known reasons for missed targets.
CAUSES = {
    "records, 64 B, asleep": "the medians of both ways differ by less than the rounds of either do.",
    "records, 4 KiB, asleep": "a pass of the sealer over 4 KiB takes 0.4 us at each end, as records of 16 KiB show; the "
                              "cause of the rest is not known yet.",
    "veth:10g, softirq at the sender: records, 1 MiB": "one CPU seals and handles the packets of both ends. It takes "
                                                       "0.95 s/GB there, so it has no time left.",
}


# A test prints it, on demand: it is no part of this run.
FLOODS = ("Another run than that of the tables, of 2026-11-30 on a virtual machine of 2 CPUs (AMD EPYC): "
          "`TENDON_TEST_LONG=1 build/test/tests/unit_runtime --gtest_filter=SecureFlood.ForLonger`. Seven kinds of strangers, each "
          "for 10 s at 5,030 to 5,440 connections a second to one secure listener, beside 552 to 2,194 honest connects, one "
          "after the other. These took 6 to 27 ms (p99) and 1 to 4 s (the slowest). The memory of the process grew by 5.2 MiB "
          "at most.")


class Run(NamedTuple):
    """One run of the verb."""

    link: str
    softirq: str | None = None
    sealer: str = "automatic"

    def name(self) -> str:
        where = f"{self.link}, softirq at the {self.softirq}" if self.softirq else self.link
        return where + (f", {self.sealer}" if self.sealer != "automatic" else "")

    def command(self, build_dir: str, rounds: int) -> list[str]:
        words = [f"{build_dir}/bin/tendon", "bench", "secure", "--json", "--link", self.link, "--sealer", self.sealer,
                 "--rounds", str(rounds)]
        return words + (["--softirq", self.softirq] if self.softirq else [])


LINKS = [Run("loopback"), *(Run(link, softirq) for link in ("veth:1g", "veth:10g") for softirq in ("sender", "receiver"))]
RUNS = LINKS + [Run(run.link, run.softirq, "openssl") for run in LINKS if run.softirq != "sender"]


class Judged(NamedTuple):
    what: str
    cells: list[str]
    is_met: bool | None  # None: shown without a verdict


def spread(row: dict[str, Any], name: str) -> str:
    return f"{number(row[name])} ({number(row[name + '_min'])}..{number(row[name + '_max'])})"


def execute(command: list[str]) -> dict[str, Any] | str:
    """Returns the command's document, or the reason why it has none."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.stderr.strip() or f"exit code {done.returncode}"
    return document["error"]["detail"] if "error" in document else document


def judge(run: Run, document: dict[str, Any]) -> list[Judged]:
    """Compares each protected row of a run with its row without protection."""
    rows = {(row["mode"], row["policy"], row["size_bytes"]): row for row in document["results"]}
    judged = []

    def add(what: str, theirs: str, ours: str, ratio: dict[str, Any], name: str, limit: float | None, is_least: bool) -> None:
        is_met = None if limit is None else ratio[name] >= limit if is_least else ratio[name] <= limit
        target = "-" if limit is None else f"{'>=' if is_least else '<='} {limit:g}"
        judged.append(Judged(what, [what, theirs, ours, spread(ratio, name), target,
                                    {None: "stated", True: "met", False: "NOT MET"}[is_met]], is_met))

    for (mode, policy, size_bytes), row in rows.items():
        if mode not in TLS:
            continue
        base = rows[TLS[mode], policy, size_bytes]
        ratio = row["ratio"]
        is_ours = mode == "records" and run.sealer == "automatic" and document["crypto"]["sealer"] == "ipsec-mb"
        what = f"{run.name()}: {mode}, {size_text(size_bytes)}"
        if row["bandwidth_gb_per_s"] is None:
            sleeps = policy == "blocking"
            add(f"{what}, {'asleep' if sleeps else 'spinning'}, p50 [us]", spread(base, "latency_us_p50"),
                spread(row, "latency_us_p50"), ratio, TLS[mode], MOST_LATENCY if is_ours and sleeps else None, False)
            continue
        rate = LEAST_RATE if is_ours and run.link != "loopback" else None
        add(f"{what} [GB/s]", spread(base, "bandwidth_gb_per_s"), spread(row, "bandwidth_gb_per_s"), ratio, TLS[mode], rate,
            True)
        for side in ("sender", "receiver"):
            add(f"{what}, {side} [CPU s/GB]", spread(base, f"{side}_cpu_s_per_gb"), spread(row, f"{side}_cpu_s_per_gb"),
                ratio, f"{side}_cpu", MOST_CPU if run.link == "loopback" and mode == "records" else None, False)
    return judged


def crypto_table(crypto: dict[str, Any]) -> str:
    rows = [[f"seal records of 16 KiB, {row['sealer']}", f"{spread(row, 'cpu_s_per_gb')} s/GB", "-", "-"]
            for row in crypto["sealing"]]
    rows += [[f"handshake by {row['proof']}", f"{spread(row, 'client_cpu_ms')} ms", f"{spread(row, 'server_cpu_ms')} ms",
              spread(row, "handshakes_per_s")] for row in crypto["handshakes"]]
    return table(["what", "CPU (of the client)", "CPU of the server", "a second, both ends on one CPU"], rows)


def main() -> int:
    parser = command_line(__doc__, [run.name() for run in RUNS], rounds=9)
    add_build_dir(parser)
    arguments = parse(parser)
    tell_load()
    load = f"{os.getloadavg()[0]:.1f}"
    documents: dict[Run, dict[str, Any]] = {}
    missing: list[list[str]] = []
    commands: dict[Run, str] = {}
    for run in RUNS:
        if arguments.only and run.name() not in arguments.only:
            continue
        command = run.command(arguments.build_dir, arguments.rounds)
        commands[run] = " ".join(command)
        say(f"measuring: {commands[run]}")
        found = execute(command)
        if isinstance(found, str):
            missing.append([run.name(), found])
        else:
            documents[run] = found
    if arguments.json:
        print(json.dumps({run.name(): document for run, document in documents.items()}, indent=1))
    if not documents:
        say(f"not measured: {missing}")
        return 1
    judged = [line for run, document in documents.items() for line in judge(run, document)]
    crypto = next(iter(documents.values()))["crypto"]
    comparison = table(["what", "unprotected", "in TLS", "ratio", "target", "result"], [line.cells for line in judged])
    facts = table(["run", "why it has no figures"], missing) if missing else ""
    if not arguments.json:
        print(comparison, crypto_table(crypto), facts, sep="\n\n")
    if not makes_document(arguments):
        return 1 if missing else 0
    machine = host_card() | {
        "instructions": " ".join(crypto["cpu_features"]),
        "compiler": compiler(arguments.build_dir),
        "sealers": f"libipsec-mb {crypto['ipsec_mb'] or 'none'}; OpenSSL {crypto['openssl']}, {crypto['openssl_provider']} provider",
        "date": datetime.date.today().isoformat(),
        "command": f"`tools/bench_secure.py --rounds {arguments.rounds}`",
        "load average at the start": load}
    parts = [
        f"# {TITLE}",
        "Written by `make bench` (`tools/bench_secure.py`); do not edit. A link is two processes, each pinned to a CPU, and "
        "for `veth` in a network namespace; tbf limits each direction. On a machine of two CPUs the system shares them.",
        table(["machine", ""], [list(fact) for fact in machine.items()]),
        f"## {TITLE}: promises and comparisons",
        f"Medians of {arguments.rounds} rounds of one run with their range; in a round each way took its turn, over the same "
        "bytes, and a ratio is formed inside each round. `records`: a pipe with a key beside one in plaintext. `ssl`: "
        "SSL_read and SSL_write of OpenSSL over a socket beside that socket. Below 1 MiB: half a round trip, beside the same "
        "way unprotected. CPU: what each process took in all its threads, and the ratio is to the unprotected way with one "
        "pass of the sealer. What the kernel does in threads of its own is in none of them.",
        comparison,
        f"## {TITLE}: cryptography alone", crypto_table(crypto),
        f"## {TITLE}: floods of connections", FLOODS]
    if missed := [line.what for line in judged if line.is_met is False]:
        parts += [f"## {TITLE}: Not met, and why",
                  "\n".join(f"- **{what}**: {cause_of(what)}" for what in missed)]
    parts += [f"## {TITLE}: commands", table(["run", "command"], [[run.name(), f"`{commands[run]}`"] for run in documents])]
    if missing:
        parts += [f"## {TITLE}: not measured", facts]
    write_document(arguments, "tools/bench_secure.py", parts)
    return 1 if missing else 0


def cause_of(what: str) -> str:
    return next((cause for part, cause in CAUSES.items() if part in what), "not known yet.")


if __name__ == "__main__":
    sys.exit(main())
