#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in the code of secure links, one at a time, and checks that tests find each.

planted_faults.py [NAME ...]     in a copy of the tree, build/faults; exit code 1 if a fault is not found
planted_faults.py --list         lists the faults
planted_faults.py --self-test    checks that each fits the present code: quick, and part of `make lint`

A fault replaces text that occurs once in its file. The tests must first pass without it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAULTS_DIR = ROOT / "build" / "faults"
SOURCE = FAULTS_DIR / "source"
BUILD = FAULTS_DIR / "build"


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    right: str
    wrong: str
    program: str = "unit_secure"
    tests: str = "TlsHandshake.*:Certificates.*:Alerts.*:HandshakeInput.*:ClientHelloGate.*"


CREDENTIALS = "src/secure/credentials.cpp"
HANDSHAKE = "src/secure/tls_handshake.cpp"
GATE = "src/secure/client_hello_gate.cpp"
PROTECTION = "src/secure/record_protection.cpp"
LAYER = "src/secure/record_layer.cpp"
RENEWAL = "src/secure/renewal.cpp"
VERIFY = "SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT"
RECORDS = "Sealers/Records.*"
PATH = "SecurePath.*:SecureStream.*"
RENEWALS = "Renewal.*:RenewedSecrets.*"

FAULTS = [
    Fault("certificates-not-asked", CREDENTIALS, VERIFY, "SSL_VERIFY_NONE"),
    Fault("client-without-certificate", CREDENTIALS, VERIFY, "SSL_VERIFY_PEER"),
    Fault("older-tls", CREDENTIALS, "SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)",
          "SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION)"),
    Fault("other-suites", CREDENTIALS, '"TLS_AES_256_GCM_SHA384"', '"TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"'),
    Fault("longer-chains", CREDENTIALS, "SSL_CTX_set_verify_depth(context, kMaxIssuersBetween)",
          "SSL_CTX_set_verify_depth(context, 10)"),
    Fault("tickets", CREDENTIALS, "SSL_CTX_set_num_tickets(context, 0)", "SSL_CTX_set_num_tickets(context, 2)", "unit_transport", PATH),
    Fault("no-dummy-session", HANDSHAKE, "*session = self.session_of(secret.bytes()).release();",
          "*session = self.client_identity_.empty() ? nullptr : self.session_of(secret.bytes()).release();"),
    Fault("any-name", HANDSHAKE, "!expected.empty() && !has_name(", "expected == std::string(1, 0) && !has_name("),
    Fault("alert-by-reason", HANDSHAKE, "X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);",
          "if (is_signed) X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);"),
    Fault("any-protocol", HANDSHAKE, "if (as_text(std::as_bytes(std::span(protocol, protocol_bytes))) != kProtocol)",
          "if (protocol_bytes > 100)"),
    Fault("lane-of-anybody", HANDSHAKE, "!options_.session_id.empty() && !by_key)", "options_.session_id == kProtocol && !by_key)"),
    Fault("long-handshakes", HANDSHAKE, "if (input_bytes_ > kMaxHandshakeInputBytes)", "if (input_bytes_ > 1'000'000)"),
    Fault("long-hellos", GATE, "length > kMaxClientHelloBytes - kRecordHeader)\n", "length > 20'000)\n"),
    Fault("bytes-behind-a-hello", GATE, "if (received.size() > kRecordHeader + length)", "if (received.size() > 30'000 + length)"),
    Fault("tag-not-compared", PROTECTION, "if (!sealer_->open(nonce, header, sealed, front)) {",
          "if (!sealer_->open(nonce, header, sealed, front) && sealed.empty()) {", tests=RECORDS),
    Fault("sequence-not-counted", PROTECTION, "return nonce_of(iv_.bytes(), sequence_++);",
          "return nonce_of(iv_.bytes(), sequence_);", "unit_transport", PATH),
    Fault("cut-is-an-end", LAYER, "if (!receiving_) return {};\n  return Error", "if (true) return {};\n  return Error",
          "unit_transport", PATH),
    Fault("updates-without-end", LAYER, "if (++updates_ > limits_.updates) {", "if (++updates_ > 1'000'000'000) {",
          "unit_transport", PATH),
    Fault("switch-is-an-end", LAYER, "if (is_close_notify && next_receiving_) {",
          "if (is_close_notify && next_receiving_ && error_) {", tests=RECORDS),
    Fault("renewed-by-anybody", RENEWAL, "if (made.proof != terms_.proof || made.identity != terms_.identity) {",
          "if (made.identity.empty()) {", tests=RENEWALS),
    Fault("early-switch", RENEWAL, "state_ = State::confirming;", "state_ = State::confirming;\n    step.switches = true;",
          tests=RENEWALS),
    Fault("renewals-without-end", RENEWAL, "if (++starts_ > terms_.limits.starts) {", "if (++starts_ > 1'000'000'000) {",
          tests=RENEWALS),
    Fault("lanes-with-one-key", "src/secure/renewed_secrets.cpp", "const std::string id(connection_id);",
          "const std::string id(connection_id.substr(0, 0));", tests=RENEWALS),
    Fault("old-keys", LAYER, "auto advanced = receiving_->advance();", "Result<void> advanced{};", "unit_transport", PATH),
]


def cannot_be_planted(root: Path) -> list[str]:
    reasons = []
    for fault in FAULTS:
        count = (root / fault.file).read_text().count(fault.right)
        if count != 1:
            reasons.append(f"{fault.file}: the text of fault '{fault.name}' stands there {count} times and not once: "
                           f"write it anew in tools/planted_faults.py")
    if len({fault.name for fault in FAULTS}) != len(FAULTS):
        reasons.append("two faults have one name")
    return reasons


def copy_tree() -> None:
    """Copies the files of the tree that git does not ignore; unchanged ones keep their time, and are not compiled
    again.
    """
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                            capture_output=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        if not (ROOT / name).is_file():
            continue
        there = SOURCE / name
        contents = (ROOT / name).read_bytes()
        if there.exists() and there.read_bytes() == contents:
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(contents)
        there.chmod((ROOT / name).stat().st_mode)


def build(program: str) -> bool:
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    done = subprocess.run(["ninja", "-C", str(BUILD), "-j", jobs, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode != 0:
        print(done.stdout[-3000:], file=sys.stderr)
    return done.returncode == 0


def tests_pass(program: str, tests: str) -> tuple[bool, str]:
    """Returns whether they pass, and the first failed test."""
    try:
        done = subprocess.run([str(BUILD / "tests" / program), "--gtest_brief=1", f"--gtest_filter={tests}"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300)
    except subprocess.TimeoutExpired:
        return False, "a test that waited for ever"
    failed = [line.removeprefix("[  FAILED  ] ") for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
    if done.returncode == 0 and "PASSED  ] 0 tests" in done.stdout:
        sys.exit(f"no test of {program} has a name of {tests}")
    return done.returncode == 0, failed[0] if failed else f"exit code {done.returncode}"


def plant(fault: Fault) -> bool:
    """Returns True if the tests find the fault."""
    file = SOURCE / fault.file
    right = file.read_text()
    file.write_text(right.replace(fault.right, fault.wrong))
    try:
        if not build(fault.program):
            sys.exit(f"with the fault '{fault.name}' {fault.program} does not compile")
        passes, failed = tests_pass(fault.program, fault.tests)
    finally:
        file.write_text(right)
    print(f"{fault.name:28} {'NOT FOUND' if passes else 'found by ' + failed}", flush=True)
    return not passes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{fault.name:28} {fault.file}, {fault.program}" for fault in FAULTS))
        return 0
    if reasons := cannot_be_planted(ROOT):
        print("\n".join(reasons), file=sys.stderr)
        return 1
    if options.self_test:
        return 0
    if unknown := set(options.names) - {fault.name for fault in FAULTS}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in FAULTS if not options.names or fault.name in options.names]
    copy_tree()
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "test-quick", "-S", str(SOURCE), "-B", str(BUILD)], check=True, cwd=SOURCE,
                       stdout=subprocess.DEVNULL)
    for program, tests in sorted({(fault.program, fault.tests) for fault in chosen}):
        if not build(program):
            return 1
        passes, failed = tests_pass(program, tests)
        if not passes:
            sys.exit(f"{program} fails without a fault: {failed}")
    found = [plant(fault) for fault in chosen]
    print(f"{sum(found)} of {len(found)} faults were found")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
