# SPDX-License-Identifier: Apache-2.0
"""deploy/: its containers as plain processes, each in namespaces of its own, from the same files that an engine reads.

A container is simulated by namespaces for network, host name, mounts and processes, by the runtime directory of the
image below a /run of its own, by the entrypoint, and by SIGTERM at the end.
"""

import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, eventually
from test_brain import BRAIN, PROGRAMS, TENDON, needs_programs, skip_without_zenoh

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "docker-compose.yaml"
SHARED_MEMORY = DEPLOY / "docker-compose.shared-memory.yaml"
sys.path.insert(0, str(ROOT / "tools"))
bench_network = __import__("bench_network")

# Each link of the brain: the place of its subscriber, and the key.
LINKS = [("pfc", "vision/objects"), ("pfc", "lang/features"), ("pfc", "sensor/new_data"), ("language", "pfc/control"),
         ("vision", "pfc/control"), ("motor", "pfc/control"), ("motor", "vision/objects")]
# /run and /etc/hosts of a container, then its program.
IN_A_CONTAINER = """
mount -t tmpfs tmpfs /run
mkdir -m 0700 /run/tendon /run/tendon-shared
mount --bind "$1" /etc/hosts
[ -z "$2" ] || mount --bind "$2" /run/tendon-shared
: >"$3"
shift 3
exec "$@"
"""
# Listens until the brain works, and until PFC has lost the node in the argument, if there is one.
OBSERVER = """
import json, sys, tendon
node = tendon.Node("observer", domain="brain", profile="plaintext", context=tendon.Context("observer"))
told, pointed = {}, False
with node.subscriber("**", window=128) as samples:
    for sample in samples:
        if sample.key.startswith("heartbeat/"):
            told[sample.publisher] = json.loads(bytes(sample.bytes))
        elif sample.key == "motor/status":
            pointed = pointed or sample.tensors["by"] == "pfc"
        pfc = told.get("pfc", {"did": {}, "members": []})
        works = pointed and all(pfc["did"].get(what) for what in ("decisions", "onsets", "words_right"))
        lost = {event["member"].split()[0] for event in pfc["members"] if event["kind"] == "lost"}
        if len(told) == 7 - len(sys.argv) and works and lost.issuperset(sys.argv[1:]):
            break
print(json.dumps(told))
"""


def node_of_the_page() -> str:
    """The program in docs/deploy.md for a node of the reader."""
    [program] = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE | re.DOTALL)
    return program


def services(*files: Path) -> dict[str, dict]:
    """Merges these files as an engine does: a later file adds to the environment and to the volumes."""
    merged: dict[str, dict] = {}
    for file in files:
        for name, service in yaml.safe_load(file.read_text())["services"].items():
            known = merged.setdefault(name, {"environment": {}, "volumes": []})
            known["environment"] |= service.get("environment", {})
            known["volumes"] += service.get("volumes", [])
            known["command"] = service.get("command", known.get("command"))
    return merged


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"\b(TENDON_\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text()))


class Container:
    def __init__(self, host, name: str, service: dict, folder: Path, hosts_file: Path) -> None:
        self.name = name
        self.is_up = folder / f"{name}.up"
        volume = folder / "volume" if service["volumes"] else ""
        self.environment = {"PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
                            "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1",
                            "OPENBLAS_NUM_THREADS": "1",
                            **{key: os.environ[key] for key in ("PYTHONPATH", "HOME") if key in os.environ},
                            **image_environment(), **service["environment"]}
        host.run(f"hostname {name}")
        # /usr/bin/unshare waits for the process that it started, and ends with its exit code.
        self.process = subprocess.Popen(
            host.command(["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
                          "sh", "-ec", IN_A_CONTAINER, "sh", hosts_file, volume, self.is_up, DEPLOY / "entrypoint.sh",
                          *service["command"]]),
            env=self.environment, cwd=BRAIN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def pid(self) -> int:
        """The first process inside."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def exec(self, *command: str | Path) -> subprocess.CompletedProcess:
        """Runs another process in the same container, like an engine's `exec`."""
        return subprocess.run(["nsenter", "--target", str(self.pid()), "--mount", "--uts", "--ipc", "--net", "--pid",
                               f"--wdns={BRAIN}", *command], env=self.environment, capture_output=True, text=True,
                              timeout=4 * PATIENCE_S)

    def stop(self) -> tuple[int, str]:
        """Stops the container like an engine's `stop`: standard input stays open. Returns its exit code and its
        output."""
        os.kill(self.pid(), signal.SIGTERM)
        return self.process.wait(PATIENCE_S), self.process.stdout.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@contextlib.contextmanager
def running(folder: Path, *files: Path) -> Iterator[dict[str, Container]]:
    """All containers of these files, and an empty one beside them."""
    (folder / "bin").mkdir()
    (folder / "volume").mkdir(mode=0o700)
    for program in [TENDON, *(PROGRAMS / name for name in ("pfc", "language", "motor"))]:
        (folder / "bin" / program.name).symlink_to(program)
    beside = {"command": ["sleep", "infinity"], "volumes": [], "environment": {"TENDON_ROUTER": "zenoh-router:7447"}}
    all_services = services(*files) | {"beside": beside}
    hosts_file = folder / "hosts"
    hosts_file.write_text("127.0.0.1 localhost\n" + "".join(
        f"{bench_network.address(number)} {name}\n" for number, name in enumerate(all_services)))
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(bench_network.network(len(all_services), None))
        except bench_network.NotMeasured as reason:
            pytest.skip(str(reason))
        containers = {}
        for host, (name, service) in zip(hosts, all_services.items(), strict=True):
            containers[name] = Container(host, name, service, folder, hosts_file)
            stack.callback(containers[name].kill)
        for container in containers.values():
            assert eventually(lambda up=container.is_up: up.exists()), container.name
        yield containers


def path_from(here: Container, key: str) -> str:
    """How a subscriber in this container reaches the publisher."""
    done = here.exec("tendon", "topic", "info", "--why", key, "--domain", "brain", "--insecure-plaintext", "--timeout", "20",
                     "--json")
    assert done.returncode == 0, (here.name, key, done.stdout, done.stderr)
    [publisher] = map(json.loads, done.stdout.splitlines())
    return publisher["path"].split(":")[0]


@needs_programs
@pytest.mark.parametrize("files, path", [([COMPOSE], "tcp"), ([COMPOSE, SHARED_MEMORY], "shm")], ids=["hosts", "shared"])
def test_the_brain_runs_in_containers(files, path, tmp_path):
    """Each container has a runtime directory of its own, as on a separate host, or all share one."""
    pytest.importorskip("sklearn")
    skip_without_zenoh()
    with running(tmp_path, *files) as containers:
        seen = containers["beside"].exec("python3", "-c", OBSERVER)
        assert seen.returncode == 0, seen.stdout + seen.stderr
        told = json.loads(seen.stdout)
        assert set(told) == {"pfc", "language", "language-1", "vision", "motor", "sensor"}
        # Motor refuses old commands, including those from before it was there.
        assert {name: source["missed"] for name, status in told.items() for source in status["inbox"]
                if name != "motor" and source["missed"]} == {}
        assert {(name, key): path_from(containers[name], key) for name, key in LINKS} == dict.fromkeys(LINKS, path)
        assert path_from(containers["beside"], "pfc/control") == "tcp", "it shares no directory with anybody"
        own = containers["beside"].exec(DEPLOY / "entrypoint.sh", "env", "BRAIN_PROFILE=plaintext", "sh", "-c",
                                        'python3 -c "$0" | head -n 1', node_of_the_page())
        assert own.stdout.startswith("motor "), own.stderr
        containers.pop("sensor").kill()
        seen = containers["beside"].exec("python3", "-c", OBSERVER, "sensor")
        assert seen.returncode == 0, seen.stdout + seen.stderr
        containers.pop("beside").kill()
        # The router ends last: nodes report its end.
        for name, container in reversed(containers.items()):
            code, said = container.stop()
            assert code == 0, (name, said)


def kustomized(kustomization: dict, documents: list[dict]) -> list[dict]:
    """Does the work of `kubectl kustomize` on the documents, as far as the files here and docs/deploy.md use it:
    names and tags of images, and replaced values. Any other instruction in them is an error."""
    assert kustomization.keys() <= {"apiVersion", "kind", "resources", "images", "patches"}
    documents = copy.deepcopy(documents)
    for document in documents:
        for patch in kustomization.get("patches", []):
            if patch["target"] != {"kind": document["kind"]}:
                continue
            for change in yaml.safe_load(patch["patch"]):
                assert change["op"] == "replace"
                *path, last = change["path"].removeprefix("/").split("/")
                place = document
                for step in path:
                    place = place[int(step) if isinstance(place, list) else step]
                assert last in place
                place[last] = change["value"]
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", []):
            for image in kustomization.get("images", []):
                if container["image"].split(":")[0] == image["name"]:
                    container["image"] = f"{image['newName']}:{image['newTag']}"
    return documents


def documents_of_the_cluster() -> list[dict]:
    """The documents that `kubectl apply -k` sends to the cluster."""
    folder = DEPLOY / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = kustomization["resources"]
    assert sorted(files) == sorted(file.name for file in folder.glob("*.yaml") if file.name != "kustomization.yaml")
    return kustomized(kustomization, [document for file in files
                                      for document in yaml.safe_load_all((folder / file).read_text())])


def manifests(kind: str) -> dict[str, dict]:
    """The specification of each document of this kind, by its name."""
    return {document["metadata"]["name"]: document["spec"] for document in documents_of_the_cluster()
            if document["kind"] == kind}


def test_kubernetes_runs_what_compose_runs():
    deployments = manifests("Deployment")
    composed = services(COMPOSE)
    assert deployments.keys() == composed.keys()
    for name, spec in deployments.items():
        pod = spec["template"]
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        [container] = pod["spec"]["containers"]
        assert container["args"] == composed[name]["command"]
        said = {one["name"]: one.get("value") for one in container.get("env", [])}
        assert {key: value for key, value in said.items() if key not in ("POD_IP", "BRAIN_LISTEN")} == \
            composed[name]["environment"]
        assert [mount["mountPath"] for mount in container.get("volumeMounts", [])] == \
            ([] if name.startswith("zenoh-router") else [str(Path(image_environment()["TENDON_RUNTIME_DIR"]).parent)])
    routers = []
    for name, service in manifests("Service").items():
        [port] = service["ports"]
        routers.append(f"{name}:{port['port']}")
        chosen = [deployment for deployment, spec in deployments.items()
                  if service["selector"].items() <= spec["template"]["metadata"]["labels"].items()]
        assert chosen == [name]
    assert len(routers) == 2
    assert composed["pfc"]["environment"]["TENDON_ROUTER"] == ",".join(routers)


def test_only_pods_of_the_brain_reach_its_pods():
    """All of them reach each other, and otherwise only the name service."""
    [policy] = manifests("NetworkPolicy").values()
    brain = policy["podSelector"]
    for name, spec in manifests("Deployment").items():
        assert brain["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), name
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["ingress"] == [{"from": [{"podSelector": brain}]}]
    inside, names = policy["egress"]
    assert inside == {"to": [{"podSelector": brain}]}
    assert {(one["protocol"], one["port"]) for one in names["ports"]} == {("UDP", 53), ("TCP", 53)}


def test_the_image_and_its_pull_policy_are_parameters():
    """The user's folder beside this one, from docs/deploy.md."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    [overlay] = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    [resource] = overlay["resources"]
    assert resource.endswith("deploy/kubernetes")
    deployments = [document for document in kustomized(overlay, documents_of_the_cluster())
                   if document["kind"] == "Deployment"]
    assert len(deployments) == len(services(COMPOSE))
    for document in deployments:
        [container] = document["spec"]["template"]["spec"]["containers"]
        assert (container["image"], container["imagePullPolicy"]) == \
            ("registry.example.org/robots/tendon-brain:0.1", "IfNotPresent"), document["metadata"]["name"]


def test_nobody_pulls_an_image_that_is_not_published():
    for name, spec in manifests("Deployment").items():
        [container] = spec["template"]["spec"]["containers"]
        assert (container["image"], container["imagePullPolicy"]) == ("tendon-brain:latest", "Never"), name
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert service["image"] == "tendon-brain", name
        assert service["pull_policy"] == ("build" if "build" in service else "never"), name
