"""GPU memory that keeps every byte of the shards that are read, and what of it is which tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from muster_agent.formats.base import TensorRange
from muster_agent.reload.gpu.device import CudaDevice
from muster_agent.reload.memory import NoRoom
from muster_agent.reload.plan import Extent

ALIGN_BYTES = 4096
SPARE_BYTES = 256 * 1024 * 1024
"""Left free on the device: CUDA itself takes memory for kernels and copies, and a full GPU fails late and badly."""


class NoDeviceRoom(NoRoom):
    """The bytes do not fit into the GPU's free memory; nothing was read. The message gives both sizes."""

    def __init__(self, wanted_bytes: int, available_bytes: int) -> None:
        wanted, available = wanted_bytes / (1 << 30), available_bytes / (1 << 30)
        message = f"the shards need {wanted:.1f} GiB of GPU memory, and {available:.1f} GiB are free on this GPU"
        Exception.__init__(self, message)
        self.wanted_bytes, self.available_bytes = wanted_bytes, available_bytes


def require_room(device: CudaDevice, wanted_bytes: int, spare_bytes: int = SPARE_BYTES) -> None:
    """Raises NoDeviceRoom."""
    available = max(0, device.free_bytes() - spare_bytes)
    if wanted_bytes > available:
        raise NoDeviceRoom(wanted_bytes, available)


class DeviceTensor(NamedTuple):
    """One tensor, or the part of it that one record holds, where it lies on the GPU. Array libraries take it without a
    copy as bytes (`torch.as_tensor(tensor, device="cuda").view(torch.bfloat16)`)."""

    name: str
    shard: str
    dtype: str
    shape: tuple[int, ...]
    address: int
    length_bytes: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.length_bytes,), "typestr": "|u1", "data": (self.address, True), "version": 3}


class DeviceArena:
    """Room on a GPU for the part of each shard that is `held`, by shard number, which outlives the reading of them.
    Raises DeviceUnavailable, and NoDeviceRoom before anything is taken."""

    def __init__(self, device_index: int, held: Sequence[Extent]) -> None:
        self.held = held
        self._begins: list[int] = []
        end = 0
        for part in held:
            self._begins.append(end)
            end += -(-part.length_bytes // ALIGN_BYTES) * ALIGN_BYTES
        self.total_bytes = max(ALIGN_BYTES, end)
        self._address = 0
        self._device = CudaDevice(device_index)
        try:
            require_room(self._device, self.total_bytes)
            self._address = self._device.allocate(self.total_bytes)
        except BaseException:
            self._device.release()
            raise

    def place(self, shard: int, offset_bytes: int) -> int:
        """The device address of a byte of a shard."""
        return self._address + self._begins[shard] + offset_bytes - self.held[shard].offset_bytes

    def tensors(self, numbers: Mapping[str, int], ranges: Iterable[TensorRange]) -> dict[str, list[DeviceTensor]]:
        """By name; a name has several where its parts lie in several records. `numbers`: the shards that are whole."""
        found: dict[str, list[DeviceTensor]] = {}
        for one in ranges:
            number = numbers.get(one.shard)
            if number is not None and self.held[number].holds(one.offset_bytes, one.length_bytes):
                address = self.place(number, one.offset_bytes)
                tensor = DeviceTensor(one.name, one.shard, one.dtype, one.shape, address, one.length_bytes)
                found.setdefault(one.name, []).append(tensor)
        return found

    def sizes(self, numbers: Iterable[int]) -> int:
        """Bytes that are held of the given shards."""
        return sum(self.held[number].length_bytes for number in numbers)

    def close(self) -> None:
        """Give the memory back; calling it twice is harmless."""
        if self._address:
            self._device.make_current()
            self._device.free(self._address)
            self._device.release()
        self._address = 0
