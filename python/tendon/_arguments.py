# SPDX-License-Identifier: Apache-2.0
"""Makes the signatures of the binding's functions, and the error texts for arguments that no overload takes."""

from __future__ import annotations

import types
from typing import Any

from . import _tendon

# The legal values by argument name, where the type alone says too little.
_TEXT = {
    "address": "text: '127.0.0.1:7000', '[::1]:7000', 'host:7000' or 'unix:/path'",
    "listen": "text: '127.0.0.1:0', or '' for nowhere or the default",
    "key": "text: 'vision/objects'",
    "keys": "text: 'vision/*'",
    "name": "text",
    "header": "bytes",
}
_MOST = {"tag": 2**32 - 1, "streams": 16}
_MOST_OF_ALL = 2**64 - 1
# Arguments that were renamed one minor version ago, by class or function.
_FORMER = {
    "Node": {"plain": "plain_keys"},
    "publisher": {"plain": "plain_peers"},
    "subscriber": {"plain": "hears_plain"},
    "Controller": {"schema_hash": "payload_version"},
    "Worker": {"schema_hash": "payload_version"},
}


def functions_of(module: types.ModuleType) -> list[tuple[Any, str, Any, bool]]:
    """Returns (scope, name, function, is it a method?) for each function that users call."""
    found = []
    scopes = [module, *(each for each in vars(module).values()
                        if isinstance(each, type) and not each.__name__.startswith("_"))]
    for scope in scopes:
        for name, function in vars(scope).items():
            kind = type(function).__name__
            if kind in ("nb_func", "nb_method") and (name == "__init__" or not name.startswith("_")):
                found.append((scope, name, function, kind == "nb_method"))
    return found


def signature_of(described: tuple[Any, ...]) -> Any:
    """Makes the inspect.Signature of nanobind's text, with the defaults that the text lacks."""
    import ast
    import inspect  # not at the top: it would slow down the import of tendon

    text, _doc, *defaults = described
    for number in range(len(defaults)):
        text = text.replace(f"\\{number}", f"_default_{number}")
    definition = ast.parse(text.rstrip(": .") + ": ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    empty = inspect.Parameter.empty

    def default_of(node: ast.expr | None) -> Any:
        if node is None:
            return empty
        if isinstance(node, ast.Name) and node.id.startswith("_default_"):
            return defaults[int(node.id.removeprefix("_default_"))]
        return ast.literal_eval(node)

    def parameter(argument: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
        annotation = empty if argument.annotation is None else ast.unparse(argument.annotation)
        return inspect.Parameter(argument.arg, kind, default=default_of(default), annotation=annotation)

    positional = [*arguments.posonlyargs, *arguments.args]
    before = [None] * (len(positional) - len(arguments.defaults))
    parameters = [parameter(each, inspect.Parameter.POSITIONAL_ONLY if each in arguments.posonlyargs
                            else inspect.Parameter.POSITIONAL_OR_KEYWORD, default)
                  for each, default in zip(positional, [*before, *arguments.defaults])]
    if arguments.vararg:
        parameters.append(parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL))
    parameters += [parameter(each, inspect.Parameter.KEYWORD_ONLY, default)
                   for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        parameters.append(parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD))
    returns = inspect.Signature.empty if definition.returns is None else ast.unparse(definition.returns)
    return inspect.Signature(parameters, return_annotation=returns)


def _without_self(signature: Any) -> Any:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def explain(function: tuple[str, tuple[Any, ...], bool], given: list[Any], named: dict[str, Any]) -> Any:
    """Repeats the call with the present names of its arguments; if it has them, raises its TypeError or ValueError."""
    name, described, is_method = function
    owner = type(given[0]).__name__ if name == "__init__" else name
    former = {old: new for old, new in _FORMER.get(owner, {}).items() if old in named and new not in named}
    if former:
        import warnings

        for old, new in former.items():
            warnings.warn(f"{owner}(): {old}= is called {new}= now", DeprecationWarning, stacklevel=2)
        return getattr(given[0], name)(*given[1:], **{former.get(key, key): value for key, value in named.items()})
    signature = signature_of(described)
    if is_method:
        name = owner
        signature, given = _without_self(signature), given[1:]
    try:
        bound = signature.bind(*given, **named)
    except TypeError as why:
        legal = ", ".join(map(str, signature.parameters)) or "none"
        raise TypeError(f"{name}(): {why}; its arguments are {legal}") from None
    wrong = [(parameter, bound.arguments[parameter.name]) for parameter in signature.parameters.values()
             if parameter.name in bound.arguments]
    for parameter, value in wrong:
        if not _fits(value, parameter.annotation):
            raise TypeError(f"{parameter.name} is {_shown(value)}; legal is {_legal(parameter)}")
    for parameter, value in wrong:
        most = _MOST.get(parameter.name, _MOST_OF_ALL)
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= most:
            raise ValueError(f"{parameter.name} is {value}; legal are whole numbers from 0 to {most}")
    raise TypeError(f"{name}() takes {signature}, not ({', '.join(map(_shown, bound.arguments.values()))})")


def _shown(value: Any) -> str:
    import reprlib

    kind = type(value)
    named = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{reprlib.repr(value)}, a '{named}'"


def _fits(value: Any, annotation: Any) -> bool:
    if not isinstance(annotation, str):
        return True
    return any(_fits_one(value, each.strip()) for each in annotation.split("|"))


def _fits_one(value: Any, annotation: str) -> bool:
    import collections.abc

    if annotation == "None":
        return value is None
    if annotation == "int":
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if annotation == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) or value is ...
    if annotation in ("str", "bytes", "bool"):
        return type(value).__name__ == annotation or isinstance(value, {"str": str, "bytes": bytes, "bool": bool}[annotation])
    outer, _, inner = annotation.partition("[")
    if outer in ("collections.abc.Sequence", "collections.abc.Iterable", "list"):
        return (isinstance(value, collections.abc.Iterable) and not isinstance(value, (str, bytes))
                and all(_fits_one(each, inner.rstrip("]")) for each in value))
    if outer == "dict":
        return isinstance(value, dict)
    if outer == "collections.abc.Callable":
        return callable(value)
    wanted = getattr(_tendon, outer.rpartition(".")[2], None)
    return not isinstance(wanted, type) or isinstance(value, wanted)


def _legal(parameter: Any) -> str:
    if parameter.name in _TEXT:
        return _TEXT[parameter.name]
    words = []
    for each in str(parameter.annotation).split("|"):
        each = each.strip()
        words.append({"str": "text (str)", "int": f"a whole number from 0 to {_MOST.get(parameter.name, _MOST_OF_ALL)}",
                      "float": "a number (int or float)", "bool": "True or False", "bytes": "bytes",
                      "collections.abc.Sequence[str]": "a list of text (str)"}.get(each, each))
    text = " or ".join(words)
    if parameter.default is not parameter.empty and parameter.default is not ...:
        text += f"; by default {parameter.default!r}"
    return text


_of_function = property(lambda it: signature_of(it.__nb_signature__[0]))
_tendon._set_signature(type(_tendon.load), _of_function)
_tendon._set_signature(type(_tendon.Pipe.recv), _of_function)
_tendon._set_signature(type(_tendon.TensorDict({}).get),  # of bound methods
                       property(lambda it: _without_self(signature_of(it.__nb_signature__[0]))))
_tendon._explain_arguments(_tendon)
