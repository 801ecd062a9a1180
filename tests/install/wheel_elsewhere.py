# SPDX-License-Identifier: Apache-2.0
"""Uses an installed wheel as its users do, without pytest: tools/check_wheel_elsewhere.sh runs it on another system.

wheel_elsewhere.py            runs all, and says what it saw
wheel_elsewhere.py ROLE ...   the other process of a step
"""

import json
import os
import subprocess
import sys

import numpy as np

import tendon

PATIENCE_S = 60


def other(*words: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, *words], env={**os.environ, **environment})


def finish(process: subprocess.Popen) -> None:
    assert process.wait(PATIENCE_S) == 0, process.args


def send(address: str) -> None:
    with tendon.connect(address, timeout=PATIENCE_S) as pipe:
        pipe.send({"values": np.arange(1 << 20, dtype="f4"), "name": "a batch"})


def check_pipe(transport: str) -> None:
    os.environ["TENDON_TRANSPORT"] = transport
    with tendon.Context(timeout=PATIENCE_S) as context, tendon.listen("127.0.0.1:0", context=context) as listener:
        process = other("send", listener.address)
        with listener.accept(timeout=PATIENCE_S) as pipe:
            batch = pipe.recv(timeout=PATIENCE_S)
            np.testing.assert_array_equal(batch["values"], np.arange(1 << 20, dtype="f4"))
            assert batch["name"] == "a batch"
            assert str(pipe.path).startswith(transport), pipe.path
            print(f"pipe: {pipe.path}")
        finish(process)
    del os.environ["TENDON_TRANSPORT"]


def join() -> None:
    with tendon.Group.join() as group:
        mine = np.full(1000, group.rank + 1.0, "f4")
        group.all_reduce(mine)
        np.testing.assert_array_equal(mine, np.full(1000, 3.0, "f4"))


def check_group() -> None:
    ranks = [other("join", RANK=f"{rank}", WORLD_SIZE="2", TENDON_RENDEZVOUS="unix:@elsewhere") for rank in (0, 1)]
    for rank in ranks:
        finish(rank)
    print("group: two ranks added their arrays")


def work(address: str) -> None:
    from tendon import control

    with control.Worker(address, tendon.ParallelLayout(), 0, timeout=PATIENCE_S) as worker:
        step = worker.next_step(timeout=PATIENCE_S)
        worker.send_outputs(step.schedule_id, step.payload[::-1])
        try:
            worker.next_step(timeout=PATIENCE_S)
        except tendon.EndOfStream:
            pass


def check_control() -> None:
    from tendon import control

    with control.Controller(tendon.ParallelLayout()) as controller:
        process = other("work", controller.address)
        controller.wait_for_workers(timeout=PATIENCE_S)
        controller.broadcast(1, b"step")
        [output] = controller.collect(1, timeout=PATIENCE_S)
        assert output.payload == b"pets", output.payload
        controller.stop(timeout=PATIENCE_S)
        finish(process)
    print("control plane: a worker replied to a step")


def command(*words: str) -> str:
    return subprocess.run(["tendon", *words], check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout


def check_command() -> None:
    build = json.loads(command("info", "--json"))["build"]
    print(f"tendon info: {json.dumps(build)}")
    print(f"tendon explain: {command('explain', 'peer_lost').splitlines()[0]}")
    assert "tendon explain" in command("manual")


def main() -> int:
    roles = {"send": send, "join": join, "work": work}
    if len(sys.argv) > 1:
        roles[sys.argv[1]](*sys.argv[2:])
        return 0
    print(f"tendon {tendon.__version__}, Python {sys.version.split()[0]}, NumPy {np.__version__}")
    check_pipe("shm")
    check_pipe("tcp")
    check_group()
    check_control()
    check_command()
    return 0


if __name__ == "__main__":
    sys.exit(main())
