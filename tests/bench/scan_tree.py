"""A tree of many small checkpoints, half PyTorch DCP and half DeepSpeed ZeRO stage 2, as a scan meets them."""

from __future__ import annotations

import io
import os
import pickle
import sys
import uuid
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from metadata_writer import Shape, write_metadata  # noqa: E402

RUNS = 10
OLD_UNIX_SECONDS = 1_700_000_000
"""Beyond any grace period."""


class SmallShape(Shape):
    """One tensor, one record of a few bytes for each rank; `columns` makes each run's metadata another."""

    rows, record_bytes = 1, 600

    def __init__(self, ranks: int, columns: int) -> None:
        super().__init__(1, ranks)
        self.columns = columns


def torch_file(value: object) -> bytes:
    """What `torch.save` makes of plain values: a stored zip with a pickle and a byte order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (
            ("data.pkl", pickle.dumps(value, protocol=2)),
            ("byteorder", b"little"),
            ("version", b"3\n"),
        ):
            info = zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0))
            archive.writestr(info, data)
    return buffer.getvalue()


def write_dcp(folder: Path, columns: int, files: int) -> None:
    """The steps of a run differ in the end of their metadata, as those of a real one do (tests/data/dcp/torchtitan)."""
    shape = SmallShape(files - 1, columns)
    record = torch_file("x" * (shape.record_bytes - len(torch_file(""))))
    for rank in range(shape.ranks):
        (folder / f"__{rank}_0.distcp").write_bytes(record)
    write_metadata(folder / ".metadata", shape, save_id=str(uuid.uuid5(uuid.NAMESPACE_URL, str(folder))))


def write_deepspeed(folder: Path, step: int, files: int) -> None:
    ranks = files - 1
    sizes = {"dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.19.8", "global_steps": step}
    model = {"module": {}, "optimizer": None, "lr_scheduler": {"step": step}, "random_ltd": None, **sizes}
    (folder / "mp_rank_00_model_states.pt").write_bytes(torch_file(model))
    for rank in range(ranks):
        optimizer = {"zero_stage": 2, "partition_count": ranks, "rank": rank}
        data = torch_file({"optimizer_state_dict": optimizer, "ds_version": "0.19.8"})
        (folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(data)


def make_tree(root: Path, checkpoints: int, files: int, *, steps_alike: bool = True) -> None:
    """`checkpoints` folders of `files` files each, old enough to be at rest. Without `steps_alike` the tensors of every
    step have another shape, so that nothing that was understood of one helps with the next."""
    for index in range(checkpoints):
        run, place = index % RUNS, index // RUNS
        step = (place + 1) * 10
        kind = "deepspeed" if run % 2 else "dcp"
        folder = root / f"{kind}-{run}" / (f"global_step{step}" if run % 2 else f"step-{step}")
        folder.mkdir(parents=True)
        if run % 2:
            write_deepspeed(folder, step, files)
        else:
            write_dcp(folder, 1024 + (run if steps_alike else index), files)
        for entry in os.scandir(folder):
            os.utime(entry.path, (OLD_UNIX_SECONDS, OLD_UNIX_SECONDS))
    for run in range(1, RUNS, 2):
        (root / f"deepspeed-{run}" / "latest").write_text(f"global_step{checkpoints // RUNS * 10}")
