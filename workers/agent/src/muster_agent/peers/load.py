"""Loads a checkpoint the way a library does, in a process of its own, and prints what it took as one JSON line.

    PYTHON load.py LOADER '{"path": FOLDER_OR_FILE, "files": [PATHS]}'

A program and no module: nothing of Muster imports it, and `muster reload --compare` alone starts it, with an
interpreter that has the library. THESE LOADERS UNPICKLE: torch.load is held to an allow-list (weights_only=True),
DCP's reader does not hold its `.metadata` to anything. The time is from the path to every tensor addressable and every
byte in memory: a page that was only mapped is touched. Importing the library is not timed.
"""

import importlib
import json
import os
import sys
import time

PAGE_BYTES = 4096


class Unfit(Exception):
    """The library does not read such files; the message says what it wants."""


def plain(task):
    """What any program can do: read every file into memory of its own. Needs no library."""

    def load():
        held = []
        for path in task["files"]:
            buffer = bytearray(os.path.getsize(path))
            with open(path, "rb", buffering=0) as file:
                filled = 0
                while filled < len(buffer) and (count := file.readinto(memoryview(buffer)[filled:])):
                    filled += count
            held.append(buffer)
        return held, sum(map(len, held))

    return load, "Python " + sys.version.split()[0], task["files"], ""


def torch_load(task, mmap=False):
    """torch.load, each file in turn."""
    torch = importlib.import_module("torch")
    files = [path for path in task["files"] if begins_with(path, b"PK\x03\x04") or begins_with(path, b"\x80")]
    if not files:
        raise Unfit("there is no file of torch.save")

    def load():
        held = [torch.load(path, map_location="cpu", weights_only=True, mmap=mmap) for path in files]
        return held, touch_storages(torch, held)

    return load, "torch " + torch.__version__, files, "weights_only=True"


def torch_mmap(task):
    """The same, mapped instead of copied."""
    return torch_load(task, mmap=True)


def safetensors(task):
    """safetensors.torch.load_file where torch is there, else safetensors.numpy."""
    package = importlib.import_module("safetensors")
    files = [path for path in task["files"] if path.endswith(".safetensors")]
    if not files:
        raise Unfit("there is no .safetensors file")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        reader = importlib.import_module("safetensors.numpy")

        def load():
            held = [reader.load_file(path) for path in files]
            return held, sum(array.nbytes for tensors in held for array in tensors.values())

        return load, "safetensors " + package.__version__ + " (numpy)", files, ""
    reader = importlib.import_module("safetensors.torch")

    def load_with_torch():
        held = [reader.load_file(path) for path in files]
        return held, touch_storages(torch, held)

    return load_with_torch, "safetensors " + package.__version__, files, ""


def dcp(task):
    """torch.distributed.checkpoint into tensors that are made for it, in one process."""
    torch = importlib.import_module("torch")
    checkpoint = importlib.import_module("torch.distributed.checkpoint")
    kinds = importlib.import_module("torch.distributed.checkpoint.metadata")
    if not os.path.exists(os.path.join(task["path"], ".metadata")):
        raise Unfit("there is no .metadata of torch.distributed.checkpoint")

    def load():
        reader = checkpoint.FileSystemReader(task["path"])
        entries = reader.read_metadata().state_dict_metadata
        state = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in entries.items()
            if isinstance(entry, kinds.TensorStorageMetadata)
        }
        checkpoint.load(state, storage_reader=reader, no_dist=True)
        return state, touch_storages(torch, state)

    note = "its .metadata is unpickled without an allow-list; entries that are no tensors are left out"
    return load, "torch " + torch.__version__, task["files"], note


LOADERS = {"plain": plain, "torch": torch_load, "torch_mmap": torch_mmap, "safetensors": safetensors, "dcp": dcp}


def begins_with(path, magic):
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def touch_storages(torch, value):
    """Bytes behind all tensors in nested containers, each storage once, after a byte of each of its pages was read."""
    storages = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    for storage in storages.values():
        torch.empty(0, dtype=torch.uint8).set_(storage)[::PAGE_BYTES].sum()
    return sum(storage.nbytes() for storage in storages.values())


def memory():
    """(resident bytes now, highest so far) of this process."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass


def measure(load):
    forget_peak()
    before, cpu, began = memory()[0], time.process_time(), time.monotonic()
    held, resident_bytes = load()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    extra = max(0, memory()[1] - before)
    del held
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_bytes": extra,
        "resident_bytes": resident_bytes,
    }


def answer(name, task):
    try:
        load, version, files, note = LOADERS[name](task)
    except ImportError as error:
        return {"outcome": "missing", "detail": str(error)}
    except Unfit as error:
        return {"outcome": "unfit", "detail": str(error)}
    try:
        measured = measure(load)
    except Exception as error:
        return {"outcome": "failed", "version": version, "detail": type(error).__name__ + ": " + str(error)[:500]}
    read_bytes = sum(map(os.path.getsize, files))
    return {"outcome": "ran", "version": version, "bytes": read_bytes, "detail": note, **measured}


if __name__ == "__main__":
    print("\n" + json.dumps(answer(sys.argv[1], json.loads(sys.argv[2]))))
