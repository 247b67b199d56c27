"""The hash kernel as machine code for one GPU architecture. Compiling needs NVRTC, but no GPU and no driver."""

from __future__ import annotations

from importlib import resources
from typing import Any

KERNEL_NAME = "hash_chunks"
KERNEL_THREADS = 288
"""One warp that follows the chain of blocks, and eight that sum; as the source says."""


class KernelUnavailable(Exception):
    """The kernel could not be compiled; the message says what is missing, or what the compiler said."""


def kernel_source() -> str:
    """The CUDA source. Compiled as C with MUSTER_HOST defined, it gives the same digests on the CPU."""
    return resources.files(__package__).joinpath("xxh3_chunks.cu").read_text("utf-8")


def compile_kernel(major: int, minor: int) -> bytes:
    """A cubin for the compute capability `major`.`minor`. Raises KernelUnavailable."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise KernelUnavailable("the package cuda-bindings is not installed") from error
    try:
        return _compile(nvrtc, major, minor)
    except RuntimeError as error:  # the binding's loader: the NVRTC library itself is not there
        raise KernelUnavailable(f"NVRTC could not be loaded: {str(error).splitlines()[0]}") from error


def _compile(nvrtc: Any, major: int, minor: int) -> bytes:
    def call(name: str, *arguments: Any) -> tuple[Any, ...]:
        status, *values = getattr(nvrtc, name)(*arguments)
        if int(status) != 0:
            raise KernelUnavailable(f"{name} gave NVRTC error {int(status)}{_log(nvrtc, arguments[0])}")
        return tuple(values)

    (program,) = call("nvrtcCreateProgram", kernel_source().encode(), b"xxh3_chunks.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{major}{minor}".encode(), b"--std=c++17"]
    call("nvrtcCompileProgram", program, len(options), options)
    (size_bytes,) = call("nvrtcGetCUBINSize", program)
    cubin = bytearray(size_bytes)
    cubin_out = bytes(cubin)
    call("nvrtcGetCUBIN", program, cubin_out)
    call("nvrtcDestroyProgram", program)
    return cubin_out


def _log(nvrtc: Any, program: Any) -> str:
    """What the compiler said, for the message; empty where there is no program yet."""
    try:
        _, size_bytes = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size_bytes)
        nvrtc.nvrtcGetProgramLog(program, log)
    except Exception:
        return ""
    return f": {log.rstrip(bytes(1)).decode(errors='replace')[:2000]}"
