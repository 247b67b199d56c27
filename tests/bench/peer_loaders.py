"""Loads the bench's tensors the way another library does, hashes every byte, and prints what it took as one JSON line.

    PYTHON peer_loaders.py write FOLDER SAFETENSORS...     the same tensors in the other formats
    PYTHON peer_loaders.py LOADER FOLDER                   one timed load, in this fresh process

For the bench alone, by an interpreter that has the libraries (tests/bench/requirements-peers.txt). The time is from the
path to every tensor addressable and the XXH3-64 of every byte known, with one thread of our own for the hashing, as a
user of that library would add it. Importing the library is not timed. The files are the bench's own, so unpickling
them is safe.
"""

import importlib
import json
import os
import sys
import time
from glob import glob


def main(arguments):
    name, folder, *files = arguments
    if name == "write":
        write(folder, files)
        return {"ok": True}
    load, version = LOADERS[name](folder)
    xxhash = importlib.import_module("xxhash")
    before = forget_peak()
    cpu, began = time.process_time(), time.monotonic()
    total = 0
    for array in load():
        total += memoryview(array).nbytes
        xxhash.xxh3_64(array).intdigest()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    extra = max(0, memory("VmHWM") - before)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "bytes": total, "rss_bytes": extra, "version": version}


def write(folder, files):
    """safetensors (with names that are unique over the files), torch.save, DCP and zarr3 of the same tensors."""
    torch, checkpoint = importlib.import_module("torch"), importlib.import_module("torch.distributed.checkpoint")
    safe = importlib.import_module("safetensors.torch")
    state = {}
    for format_name in ("torch", "safetensors"):
        os.makedirs(os.path.join(folder, format_name))
    for number, path in enumerate(files):
        tensors = {f"{number}.{name}": tensor for name, tensor in safe.load_file(path).items()}
        torch.save(tensors, os.path.join(folder, "torch", f"{number}.pt"))
        safe.save_file(tensors, os.path.join(folder, "safetensors", f"{number}.safetensors"))
        state.update(tensors)
    checkpoint.save(state, checkpoint_id=os.path.join(folder, "dcp"), no_dist=True)
    store = importlib.import_module("tensorstore")
    for name, tensor in state.items():
        array = as_bytes(tensor)
        place = {"driver": "file", "path": os.path.join(folder, "zarr", name)}
        # one chunk for each 8 MiB, as stores of large tensors have it, and no codec: the bytes are raw
        chunk = min(len(array), 8 << 20)
        spec = {"driver": "zarr3", "kvstore": place, "create": True}
        grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
        spec["metadata"] = {"shape": [len(array)], "data_type": "uint8", "chunk_grid": grid}
        store.open(spec).result().write(array).result()
    os.sync()


def as_bytes(tensor):
    torch = importlib.import_module("torch")
    return tensor.contiguous().view(-1).view(torch.uint8).numpy()


def torch_load(folder, mmap=False):
    torch = importlib.import_module("torch")

    def load():
        for path in sorted(glob(os.path.join(folder, "torch", "*.pt"))):
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
            yield from map(as_bytes, held.values())

    return held_until_the_end(load), torch.__version__


def torch_mmap(folder):
    return torch_load(folder, mmap=True)


def dcp(folder):
    torch, checkpoint = importlib.import_module("torch"), importlib.import_module("torch.distributed.checkpoint")

    def load():
        reader = checkpoint.FileSystemReader(os.path.join(folder, "dcp"))
        entries = reader.read_metadata().state_dict_metadata
        state = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in entries.items()}
        checkpoint.load(state, storage_reader=reader, no_dist=True)
        return map(as_bytes, state.values())

    return held_until_the_end(load), torch.__version__


def safetensors(folder):
    package, reader = importlib.import_module("safetensors"), importlib.import_module("safetensors.torch")

    def load():
        for path in originals(folder):
            yield from map(as_bytes, reader.load_file(path).values())

    return held_until_the_end(load), package.__version__


def fastsafetensors(folder):
    package, torch = importlib.import_module("fastsafetensors"), importlib.import_module("torch")

    def load():
        device = torch.device("cpu")
        loader = package.SafeTensorsFileLoader(package.SingleGroup(), device, nogds=True, max_threads=16)
        loader.add_filenames({0: originals(folder)})
        buffers = loader.copy_files_to_device()
        KEPT.extend((loader, buffers))
        for name in list(buffers.key_to_rank_lidx):
            yield as_bytes(buffers.get_tensor(name))

    return held_until_the_end(load), installed("fastsafetensors")


def runai(folder):
    package = importlib.import_module("runai_model_streamer")

    def load():
        with package.SafetensorsStreamer() as streamer:
            streamer.stream_files(originals(folder))
            for _name, tensor in streamer.get_tensors():
                yield as_bytes(tensor)

    return load, installed("runai-model-streamer")


def tensorstore(folder):
    store = importlib.import_module("tensorstore")

    def load():
        places = sorted(os.path.dirname(path) for path in glob(os.path.join(folder, "zarr", "*", "zarr.json")))
        specs = [{"driver": "zarr3", "kvstore": {"driver": "file", "path": place}} for place in places]
        reads = [store.open(spec, open=True).result().read() for spec in specs]
        for read in reads:
            yield read.result()

    return held_until_the_end(load), installed("tensorstore")


LOADERS = {
    "torch_load": torch_load,
    "torch_mmap": torch_mmap,
    "dcp": dcp,
    "safetensors": safetensors,
    "fastsafetensors": fastsafetensors,
    "runai": runai,
    "tensorstore": tensorstore,
}
KEPT = []


def held_until_the_end(load):
    """A loader leaves its tensors in memory: nothing is freed while the clock runs."""

    def loading():
        for array in load():
            KEPT.append(array)
            yield array

    return loading


def originals(folder):
    return sorted(glob(os.path.join(folder, "safetensors", "*.safetensors")))


def installed(name):
    return importlib.import_module("importlib.metadata").version(name)


def memory(field):
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass
    return memory("VmRSS")


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1:])), flush=True)
    os._exit(0)  # some of the libraries leave threads that keep a process from ending
