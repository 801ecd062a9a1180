# SPDX-License-Identifier: Apache-2.0
"""Arguments of a wrong type cause errors in Tendon's own words; every public function has a signature."""

import datetime
import importlib
import importlib.util
import inspect
import pathlib
import re
import types

import numpy as np
import pytest

import tendon
from conftest import SANITIZED, free_address


class Anything:
    def __repr__(self) -> str:  # the same in each process that shares the tests
        return "Anything()"


BINDING = re.compile("incompatible function arguments|Invoked with types|nanobind")
ADDRESSES = [("127.0.0.1", 7000), b"127.0.0.1:7000", pathlib.Path("/tmp/s"), 7000, None, ["127.0.0.1:7000"], 7000.5]
TIMEOUTS = [np.float32(0.5), datetime.timedelta(seconds=1), "1", b"1", True, [1], Anything(), np.array([1.0])]


def refused(call, says, kind=TypeError):
    with pytest.raises(kind) as raised:
        call()
    text = str(raised.value)
    assert not BINDING.search(text) and re.search(says, text), text


@pytest.mark.parametrize("address", ADDRESSES, ids=repr)
def test_addresses(address):
    said = rf"^address is {re.escape(repr(address))}, a '.*'; legal is text: '127.0.0.1:7000'"
    context = tendon.default_context()
    for call in (lambda: tendon.connect(address), lambda: tendon.listen(address), lambda: context.connect(address),
                 lambda: context.listen(address), lambda: tendon.serve(address, print), lambda: context.aconnect(address),
                 lambda: tendon.aconnect(address), lambda: tendon.Rendezvous.at(address, 0, 1)):
        refused(call, said)
    if address is not None:
        refused(lambda: tendon.Group.join(rank=0, size=1, address=address), "^address is .*; legal is text")


@pytest.mark.parametrize("timeout", TIMEOUTS, ids=repr)
def test_timeouts(make_pair, timeout):
    pair = make_pair()
    said = r"^timeout is .*, a '.*'; legal are seconds as an int or a float"
    for call in (lambda: pair.there.recv(timeout), lambda: pair.there.recv(timeout=timeout),
                 lambda: pair.here.send({}, timeout), lambda: pair.here.flush(timeout), lambda: pair.here.aflush(timeout),
                 lambda: tendon.connect(free_address(), timeout), lambda: pair.contexts[0].aconnect(free_address(), timeout),
                 lambda: tendon.Context(timeout=timeout), lambda: pair.there.each(timeout).__next__()):
        refused(call, said)
    for timeout in (np.float64(0), np.int64(0), 0, 0.0):
        with pytest.raises(tendon.Timeout):
            pair.there.recv(timeout)
    refused(lambda: pair.there.recv(-1), "timeout is -1.0; legal are 0 seconds", ValueError)


@pytest.mark.parametrize("dtype", ["f3", "int4", "float", "", "U5", object, np.dtype("U4"), 3, None, b"f32", "i8", "u8", "f16", "c32"],
                         ids=repr)
def test_names_of_element_types(make_pair, dtype):
    pair = make_pair()
    for call in (lambda: pair.here.loan({"x": (dtype, 3)}), lambda: tendon.Schema({"x": (dtype, 3)}),
                 lambda: pair.contexts[0].pool.empty((3,), dtype)):
        refused(call, "there is no element type '.*'; legal are bool, uint8|has two readings")


@pytest.mark.parametrize("shape", ["3", b"3", 1.5, (1.5,), ("a",), None, Anything(), {"a": 1}, True, [None]], ids=repr)
def test_shapes(make_pair, shape):
    pair = make_pair()
    for call in (lambda: pair.here.loan({"x": ("f32", shape)}), lambda: tendon.Schema({"x": ("f32", shape)}),
                 lambda: pair.contexts[0].pool.empty(shape, "f32")):
        refused(call, "a shape is .*; legal are whole numbers from 0")


def test_what_else_is_no_argument(make_pair, tmp_path):
    pair = make_pair()
    pipe, context = pair.here, pair.contexts[0]
    for call, says in [
        (lambda: pipe.send({}, tag="a"), "^tag is 'a', a 'str'; legal is a whole number from 0 to 4294967295"),
        (lambda: pipe.send(b"", tag=1.5), "^tag is 1.5, a 'float'; legal is a whole number"),
        (lambda: pipe.send(b"", header="h"), "^header is 'h', a 'str'; legal is bytes"),
        (lambda: pipe.recv(mode=3), "^mode is 3, a 'int'; legal is text"),
        (lambda: pipe.send(), r"^send\(\): missing a required argument: 'data'; its arguments are data, timeout, tag, header"),
        (lambda: pipe.send({}, nope=1), r"^send\(\): got an unexpected keyword argument 'nope'; its arguments are data"),
        (lambda: pipe.recv(1, 2), r"^recv\(\): too many positional arguments; its arguments are timeout, mode, as_"),
        (lambda: tendon.Context(3), "^name is 3, a 'int'; legal is text"),
        (lambda: tendon.Context(None), "^name is None, a 'NoneType'; legal is text"),
        (lambda: tendon.Context(streams="x"), "^streams is 'x', a 'str'; legal is a whole number from 0 to 16"),
        (lambda: tendon.Context(linger="x"), "^linger is 'x', a 'str'; legal is a number"),
        (lambda: tendon.Context(nope=1), r"^Context\(\): got an unexpected keyword argument 'nope'"),
        (lambda: tendon.Node(3), "^name is 3, a 'int'; legal is text"),
        (lambda: tendon.Node("a", peers="b"), "^peers is 'b', a 'str'; legal is a list of text"),
        (lambda: tendon.Node("a", peers=[1]), r"^peers is \[1\], a 'list'; legal is a list of text"),
        (lambda: tendon.load(), r"^load\(\): missing a required argument: 'path'"),
        (lambda: tendon.load(3), "^path is 3, a 'int'; legal are a str, bytes or os.PathLike"),
        (lambda: tendon.save(tmp_path / "x", {}, metadata=3), "^metadata is 3, a 'int'; legal is dict"),
        (lambda: tendon.ParallelLayout(tensor="x"), "tensor is "),
        (lambda: tendon.send_to_stage(1, 2, np.ones(1), 0), "^stages is 1, a 'int'; legal is a tendon.Group"),
        (lambda: tendon.connect("127.0.0.1:1", context=3), "^context is 3, a 'int'; legal are a tendon.Context and None"),
        (lambda: context.connect("127.0.0.1:1", wait="no"), "^wait is 'no', a 'str'; legal is True or False"),
        (lambda: context.listen("127.0.0.1:0", 3), "^profile is 3, a 'int'; legal is text"),
    ]:
        refused(call, says)
    for call, says in [
        (lambda: pipe.send(b"", tag=-1), "^tag is -1; legal are whole numbers from 0 to 4294967295"),
        (lambda: pipe.send(b"", tag=2**32), "^tag is 4294967296; legal are whole numbers from 0 to 4294967295"),
        (lambda: tendon.Context(link_cap_bytes=-1), "^link_cap_bytes is -1; legal are whole numbers"),
    ]:
        refused(call, says, ValueError)
    pipe.send({"still": 1}, np.float64(1))
    assert tendon.Context("a", linger=2, lease=3).name == "a"  # whole numbers for seconds still work


def test_servers():
    for most in ("3", 1.5, None, True):
        refused(lambda: tendon.serve("127.0.0.1:0", print, max_clients=most), "^max_clients is .*; legal are whole numbers")
    refused(lambda: tendon.serve("127.0.0.1:0", print, max_clients=-1), "^max_clients is -1", ValueError)
    with tendon.serve("127.0.0.1:0", print) as server:
        for timeout in ("1", [], True, datetime.timedelta(1)):
            refused(lambda: server.close(timeout), "^timeout is .*; legal are seconds")
        refused(lambda: server.close(-1), "^timeout is -1", ValueError)


def test_the_control_plane():
    from tendon.control import Controller, Worker

    layout = tendon.ParallelLayout(tensor=1)
    refused(lambda: Worker(("127.0.0.1", 7100), layout, 0), "^address is .*; legal is text|^controller")
    refused(lambda: Worker("127.0.0.1:7100", 3, 0), "^layout is 3, a 'int'; legal is .*ParallelLayout")
    refused(lambda: Controller(3, "127.0.0.1:0"), "^layout is 3, a 'int'; legal is .*ParallelLayout")
    refused(lambda: Controller(layout, 7100), "^address is 7100, a 'int'; legal is text")
    refused(lambda: Controller(layout, nope=1), "got an unexpected keyword argument 'nope'|missing a required argument")


def functions() -> list[tuple[str, object]]:
    """Every public function and method, by its name."""
    import tendon.control

    found = []
    for module in (tendon, tendon.control):
        for name in module.__all__:
            it = getattr(module, name)
            if isinstance(it, type) and not issubclass(it, Exception):
                found += [(f"{name}.{inner}", getattr(it, inner)) for inner, method in vars(it).items()
                          if not inner.startswith("_") and callable(method)]
                if type(vars(it).get("__init__")).__name__ in ("nb_method", "function"):
                    found.append((name, it))
            elif callable(it) and not isinstance(it, type):
                found.append((name, it))
    return found


@pytest.mark.parametrize("name, function", functions(), ids=lambda it: it if isinstance(it, str) else "")
def test_every_function_has_a_signature_and_a_text(name, function):
    signature = inspect.signature(function)
    assert isinstance(signature, inspect.Signature) and function.__doc__
    if "." in name and list(signature.parameters)[:1] != ["self"]:
        assert not inspect.isfunction(function)  # it would be a static method


def test_signatures(make_pair):
    pipe = make_pair().here
    assert str(inspect.signature(tendon.Pipe.flush)) == "(self, timeout: 'float | None' = Ellipsis) -> 'None'"
    assert str(inspect.signature(pipe.flush)) == "(timeout: 'float | None' = Ellipsis) -> 'None'"
    assert list(inspect.signature(tendon.Context).parameters)[:3] == ["name", "transport", "wait_policy"]
    load = inspect.signature(tendon.load).parameters["as_"]
    assert (load.kind, load.default) == (inspect.Parameter.KEYWORD_ONLY, None)
    assert inspect.signature(tendon.Group.join).parameters["listen"].default == ""


def test_all_names_everything_public():
    public = {name for name, it in vars(tendon).items()
              if not name.startswith("_") and not isinstance(it, types.ModuleType)} | {"__version__"}
    assert set(tendon.__all__) == public and len(tendon.__all__) == len(public)


def test_help_says_it(capsys):
    help(tendon.Pipe.recv)
    help(tendon.load)
    said = capsys.readouterr().out
    assert "recv(self, timeout" in said and "The next batch." in said and "Raises Timeout" in said


# Units

UNITS = {r"(connect_)?timeout|deadline|linger|lease|max_age|reconnect|period|interval|block_for|.*_seconds|.*_s": r"\[s\]|seconds?\b",
         r".*_bytes": r"bytes", r".*_hz|rate": r"Hz|a second"}


def public_callables():
    """Functions and classes with their methods, each with the text about all calls of its class."""
    modules = [tendon, importlib.import_module("tendon.server")]
    if not SANITIZED and importlib.util.find_spec("tensordict"):
        modules += [importlib.import_module("tendon.torch"), importlib.import_module("tendon.tensordict")]
    for module in modules:
        for name, it in vars(module).items():
            if name.startswith("_") or getattr(it, "__module__", "").split(".")[0] != "tendon":
                continue
            if callable(it) and not (isinstance(it, type) and issubclass(it, BaseException)):
                yield f"{module.__name__}.{name}", it, ""
            if isinstance(it, type) and not issubclass(it, BaseException):
                for method in vars(it):
                    if not method.startswith("_") and callable(getattr(it, method)):
                        yield f"{module.__name__}.{name}.{method}", getattr(it, method), it.__doc__ or ""


def without_unit() -> list:
    found = []
    for where, it, of_class in public_callables():
        try:
            parameters = inspect.signature(it).parameters
        except (TypeError, ValueError):
            continue
        for name in parameters:
            for names, unit in UNITS.items():
                said = re.compile(rf"\b{name}\b[^.;]*?(?:{unit})", re.DOTALL)
                if re.fullmatch(names, name) and not any(said.search(each) for each in (it.__doc__ or "", of_class)):
                    found.append((where, name))
    return found


def test_the_help_says_units():
    assert len(list(public_callables())) > 200
    assert without_unit() == []
