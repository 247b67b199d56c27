"""Names of Python's own library that mean values, not code: a closed list, so that healthy files stay quiet."""

from __future__ import annotations

import builtins
import re

_HARMLESS = {
    "_io": "BytesIO StringIO _BufferedIOBase _TextIOBase",
    "array": "array _array_reconstructor",
    "calendar": "Day Month",
    "collections": "ChainMap UserDict UserList UserString",
    "dataclasses": "_MISSING_TYPE _HAS_DEFAULT_FACTORY_CLASS",
    "enum": "auto",
    "http": "HTTPMethod HTTPStatus",
    "inspect": "_empty Parameter Signature _ParameterKind",
    "io": "BytesIO StringIO",
    "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
    "itertools": "chain count cycle islice repeat",
    "logging": "getLogger",
    "re": "Pattern RegexFlag _compile compile",
    "signal": "Handlers Sigmasks Signals",
    "time": "struct_time",
    "types": "GenericAlias MappingProxyType NoneType UnionType",
    "zoneinfo": "ZoneInfo ZoneInfo._unpickle",
}
_EXCEPTIONS = {
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
HARMLESS: frozenset[str] = frozenset(
    {f"{module}.{name}" for module, names in _HARMLESS.items() for name in names.split()}
    | {f"builtins.{name}" for name in _EXCEPTIONS}
)
"""They may be called: each makes a value of what it is given, and nothing else."""

_REFERRED = {
    "builtins": "abs all any getattr hash id isinstance issubclass len max min pow repr round sorted sum type",
    "_operator": "or_",
    "math": "acos asin atan ceil cos exp fabs floor inf log log10 log2 nan pi pow sin sqrt tan tanh",
}
REFERRED: frozenset[str] = frozenset(
    f"{module}.{name}" for module, names in _REFERRED.items() for name in names.split()
)
"""They may be named, as what a script keeps in an attribute; to call them is not needed to load a state."""

_CONSTANT = re.compile(r"signal\.SIG_?[A-Z0-9]{2,10}|(?:collections\.abc|typing)\.[A-Z]\w*", re.ASCII)
RUNS_CODE = frozenset(
    {
        *("os", "posix", "nt", "subprocess", "sys", "builtins", "importlib", "runpy", "pty", "socket", "shutil"),
        *("ctypes", "operator", "functools", "marshal", "code", "codeop", "pickle", "webbrowser", "multiprocessing"),
        *("threading", "pdb", "timeit", "tempfile", "pathlib"),
    }
)
"""Modules through which a file could reach what runs."""


def is_harmless_reference(full: str) -> bool:
    """Whether naming it, without a call, tells of a value, a type or a constant."""
    return full in REFERRED or full in HARMLESS or _CONSTANT.fullmatch(full) is not None


def passes_through_code(name: str) -> bool:
    """Whether a dotted name, looked up in a module, leads through that module's import of what runs: `os.system`."""
    return not RUNS_CODE.isdisjoint(name.split(".")[:-1])
