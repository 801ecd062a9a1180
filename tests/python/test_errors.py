# SPDX-License-Identifier: Apache-2.0
"""Mistakes cause the exceptions of the one table, with messages that state the legal values."""

import builtins
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tendon

TABLE = {
    "InvalidArgument": ("TD-E0001", "invalid_argument", ValueError),
    "Timeout": ("TD-E0003", "timeout", TimeoutError),
    "ContextClosed": ("TD-E0007", "context_closed", ValueError),
    "Forked": ("TD-E0008", "forked", RuntimeError),
    "EndOfStream": ("TD-E0101", "end_of_stream", EOFError),
    "PeerLost": ("TD-E0107", "peer_lost", ConnectionError),
    "FileNotFound": ("TD-E0305", "file_not_found", FileNotFoundError),
    "NotFound": ("TD-E0306", "not_found", KeyError),
}


@pytest.mark.parametrize("name", TABLE)
def test_classes_of_the_table(name):
    code, cpp_name, builtin = TABLE[name]
    made = getattr(tendon, name)
    assert (made.code, made.name) == (code, cpp_name)
    assert issubclass(made, tendon.Error) and issubclass(made, builtin)
    assert made.remedy
    assert made.__doc__.startswith(code)


def test_every_row_of_the_table_is_a_class(package_folder):
    classes = [c for c in vars(tendon).values()
               if isinstance(c, type) and issubclass(c, tendon.Error) and c is not tendon.Error]
    assert len(classes) > 30
    assert len({c.code for c in classes}) == len(classes)
    for made in classes:
        assert re.fullmatch(r"TD-E\d{4}", made.code)
        assert made.__module__ == "tendon"
        assert made.__mro__[2].__name__ in dir(builtins)


def test_an_error_says_what_where_and_what_to_do(make_pair):
    pair = make_pair("shm")
    with pytest.raises(tendon.Timeout) as raised:
        pair.there.recv(0)
    error = raised.value
    assert error.where == "pipe.recv"
    assert error.detail.startswith("nothing came from here (host")
    assert str(error).startswith("TD-E0003 timeout: nothing came") and " do: " in str(error)


@pytest.mark.parametrize("batch, says", [
    ({1: 2}, r"TypeError: a key is a 'int': 1; legal keys are of type 'str'"),
    ({"a": {b"k": 1}}, r"TypeError: a key in 'a' is a 'bytes'"),
    ({"a": object()}, r"TypeError: 'a' is a 'object'; legal are arrays"),
    ({"a": {"b": {1, 2}}}, r"TypeError: 'a/b' is a 'set'"),
    ({"a": (1, 2)}, r"TypeError: 'a' is a 'tuple'; legal are"),
    ({"a": [[1, 2], [3, np.ones(2)]]}, r"TypeError: 'a'\[1\]\[1\] is a 'numpy.ndarray'; legal are None"),
    ({"a": [{1: 2}]}, r"TypeError: 'a'\[0\] has a key that is a 'int'"),
    ({"a": 2**64}, r"ValueError: 'a' is an integer that does not fit in 64 bits"),
    ({"a": "\ud800"}, r"ValueError: 'a' holds text that is not Unicode"),
    ({"__metadata__": 1}, r"InvalidArgument: .*__metadata__"),
    ({"x" * 256: 1}, r"LimitExceeded: .*255"),
    ([np.ones(2)], r"TypeError: a 'list' is no batch; legal is a mapping"),
    (None, r"TypeError: a 'NoneType' is no batch"),
    (3, r"TypeError: a 'int' is no batch"),
])
def test_batches_that_cannot_be(pair, batch, says):
    with pytest.raises((TypeError, ValueError)) as raised:
        pair.here.send(batch)
    assert re.match(says, f"{type(raised.value).__name__}: " + str(raised.value).removeprefix("TD-E0001 ")), \
        repr(raised.value)
    pair.here.send({"still": "works"})
    assert pair.there.recv()["still"] == "works"


def test_mappings_that_contain_themselves():
    loop = {}
    loop["me"] = loop
    with pytest.raises(ValueError, match="nested deeper than 32 levels, or contains itself"):
        tendon.TensorDict(loop)
    items = []
    items.append(items)
    with pytest.raises(ValueError, match="nested deeper than 32 levels, or contains itself"):
        tendon.TensorDict({"a": items})


@pytest.mark.parametrize("timeout, says", [
    ("1", "TypeError: timeout is '1', a 'str'; legal are seconds as an int or a float, such as 0.5, or None"),
    (True, "TypeError: timeout is True, a 'bool'"),
    (-1, "ValueError: timeout is -1"),
    (float("nan"), "ValueError: timeout is nan"),
])
def test_timeouts_that_cannot_be(make_pair, timeout, says):
    pair = make_pair("shm")
    for call in (lambda: pair.there.recv(timeout), lambda: pair.here.send({}, timeout=timeout),
                 lambda: pair.here.flush(timeout), lambda: tendon.Context(timeout=timeout),
                 lambda: tendon.connect("127.0.0.1:1", timeout)):
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        assert f"{type(raised.value).__name__}: {raised.value}".startswith(says)


def test_words_that_cannot_be():
    with pytest.raises(ValueError, match="transport is 'rdma'; legal are 'automatic', 'shm', 'tcp'"):
        tendon.Context(transport="rdma")
    with pytest.raises(ValueError, match="legal are 'local', 'plaintext'"):
        tendon.listen("127.0.0.1:0", profile="open")
    with pytest.raises(TypeError, match="there is no element type 'f33'; legal are bool"):
        tendon.Schema({"x": ("f33", 2)})
    with pytest.raises(TypeError, match="'x' is a 'int'; legal are"):
        tendon.Schema({"x": 3})
    with pytest.raises(ValueError, match="lease"):
        tendon.Context(lease=-1)


def test_addresses_where_nobody_is():
    with pytest.raises(ConnectionError, match="127.0.0.1:1"):
        tendon.connect("127.0.0.1:1", timeout=5)
    with pytest.raises(tendon.InvalidArgument, match="nonsense"):
        tendon.connect("nonsense", timeout=5)
    with pytest.raises(PermissionError, match="plaintext"):
        tendon.listen("0.0.0.0:0")
    with tendon.listen("127.0.0.1:0") as listener:
        with pytest.raises(tendon.AddressInUse):
            tendon.listen(listener.address)


def test_closed_things(make_pair):
    pair = make_pair("shm")
    pair.here.close()
    with pytest.raises(tendon.PipeClosed):
        pair.here.send({"x": 1})
    pair.contexts[1].close()
    with pytest.raises(tendon.ContextClosed):
        pair.there.recv()
    with pytest.raises(tendon.ContextClosed):
        pair.contexts[1].listen("127.0.0.1:0")


def test_a_third_thread_is_told(make_pair):
    pair = make_pair("shm")
    waiting = pair.there.irecv()
    # Asynchronous receives queue; only a second blocking receive has no place.
    assert not waiting.done()
    pair.here.send({"x": 1})
    assert waiting.result()["x"] == 1
    with pytest.raises(tendon.AlreadyTaken):
        waiting.result()


BINDINGS = Path(__file__).parents[2] / "python" / "bindings"


def test_nothing_is_pickled(package_folder):
    """Neither the package nor its sources call pickle or a similar module; a program that pickles calls `__reduce__`.

    The DataLoader's workers are the program's own children, and prove this before a pickle is read.
    """
    between_own_processes = package_folder / "torch" / "_parcels.py"
    words = r"\b(pickle|cloudpickle|dill|marshal|shelve|eval|exec)\b\s*[.(]|\bimport\s+(pickle|marshal|shelve|dill)"
    files = [f for f in package_folder.rglob("*.py") if f != between_own_processes]
    assert len(files) >= 5
    for file in files:
        assert not re.search(words, file.read_text()), file
    words = r'"[^"\n]*\b(pickle|cloudpickle|dill|marshal|shelve|copyreg|eval|exec)\b[^"\n]*"' \
            r"|\b(PyMarshal_|PyRun_|PyEval_Eval|Py_CompileString|nb::eval|nb::exec)"
    files = [f for f in BINDINGS.iterdir() if f.suffix in (".cpp", ".hpp")]
    assert len(files) >= 30
    for file in files:
        assert not re.search(words, file.read_text()), file


def test_the_command_came_with_the_package(tmp_path):
    import shutil
    import sysconfig

    command = shutil.which("tendon", path=sysconfig.get_path("scripts"))
    if command is None:
        pytest.skip("the package runs from its source tree, not from a wheel")
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert tendon.__version__ in said
