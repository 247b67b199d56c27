"""What each format is known by and when one of its saves counts as finished, in words for a newcomer."""

from __future__ import annotations

from typing import NamedTuple


class FormatWords(NamedTuple):
    """`name` as people say it; `known_by` completes "recognised by"; `marker` is the file or name that ends a save, or
    None where the format has none; `settled_by` completes "so it counts as whole when"."""

    name: str
    known_by: str
    marker: str | None
    settled_by: str


_FILES_WHOLE = "every file is as long as its own header says"
_DCP_WHOLE = "every byte range that the metadata names lies in its file, and the files have no other bytes"

FORMAT_WORDS: dict[str, FormatWords] = {
    "safetensors": FormatWords(
        "set of safetensors files", "files that begin with a safetensors header, an index, or `checkpoint.json`",
        "the index, or `checkpoint.json` where ranks save their own files", _FILES_WHOLE,
    ),
    "dcp": FormatWords(
        "PyTorch distributed checkpoint (DCP)", "a `.metadata` file (or one per rank) beside `__R_I.distcp` files",
        "`.metadata`, renamed into place last", _DCP_WHOLE,
    ),
    "torchtitan": FormatWords(
        "TorchTitan checkpoint (a PyTorch DCP)", "DCP files whose state has TorchTitan's names (`train_state`, ...)",
        "`.metadata`, renamed into place last", _DCP_WHOLE,
    ),
    "dcp_hf": FormatWords(
        "DCP written for Hugging Face", "files named `shard-R-model-F-of-N.safetensors`",
        None, "every file of the N is there and the ranks' parts cover each tensor",
    ),
    "megatron_dist": FormatWords(
        "Megatron-Core distributed checkpoint", "a `metadata.json` that says torch_dist, or Megatron's names in a DCP",
        "`metadata.json`, written after `.metadata`", f"{_DCP_WHOLE}, and every group of objects is full",
    ),
    "megatron_zarr": FormatWords(
        "Megatron-Core checkpoint of zarr arrays", "a `metadata.json` that says zarr, and a folder per tensor",
        "`metadata.json`, written last", "every chunk that an array's shape needs is there",
    ),
    "megatron_legacy": FormatWords(
        "Megatron checkpoint with a file per model-parallel rank", "folders named `mp_rank_TT[_PPP]`",
        None, "the grid of ranks is full and every file is a whole torch file",
    ),
    "nemo": FormatWords(
        "NeMo checkpoint", "`weights/` and `context/` in one folder",
        "no `-unfinished` marker beside the folder", "its `weights/` are whole by their own format",
    ),
    "deepspeed": FormatWords(
        "DeepSpeed ZeRO checkpoint", "files named `...model_states.pt` and `...optim_states.pt`",
        None, "each rank's files, as many as the model's state says, are there and whole (`latest` proves nothing)",
    ),
    "deepspeed_universal": FormatWords(
        "DeepSpeed universal checkpoint", "a `zero/` folder with a folder per parameter",
        None, "every parameter has its files and the conversion left no `tmp/`",
    ),
    "hf_trainer": FormatWords(
        "Hugging Face Trainer checkpoint", "a `trainer_state.json`, or the files that the Trainer writes before it",
        "`trainer_state.json`, the first process's last file", "weights, optimizer and scheduler are whole",
    ),
    "accelerate": FormatWords(
        "Accelerate state", "`random_states_R.pkl` beside weights, as `save_state` leaves them",
        None, "its parts are whole by their own formats",
    ),
    "torch_save": FormatWords(
        "file of torch.save", "a torch zip archive (or the older form) in one file",
        None, "the zip's directory at the file's end can be read and every part it names is there",
    ),
    "lightning": FormatWords(
        "Lightning checkpoint", "Lightning's own entries in a torch file, or `meta.pt` in a folder",
        None, "the file is whole, or the folder's parts are by their own format",
    ),
    "orbax": FormatWords(
        "Orbax checkpoint", "`_CHECKPOINT_METADATA`, or items with `_METADATA`",
        "the final name without a temporary ending (in a bucket: `commit_success.txt`)",
        "every item has its metadata and every data file that this names",
    ),
    "t5x": FormatWords(
        "T5X checkpoint", "a `checkpoint` file of flax beside folders of arrays (`target.*`)",
        "the final name without `.tmp-TIME`", "every array that `checkpoint` names is there with all its weights",
    ),
    "bytecheckpoint": FormatWords(
        "ByteCheckpoint", "`model/` and `optimizer/`, each with `.metadata` and `.distcp` files",
        "each part's `.metadata`", "every byte range that the metadata names lies in its file",
    ),
    "nvrx_local": FormatWords(
        "local checkpoint of the NVIDIA resiliency extension", "files named `iter_N_R_local.pt`, in a folder per rank",
        "the final name without `.dirty`", "every rank has a whole file of this iteration",
    ),
    "torchsnapshot": FormatWords(
        "torchsnapshot", "a `.snapshot_metadata` file",
        "`.snapshot_metadata`, written last", "every byte range that it names is there",
    ),
    "gguf": FormatWords(
        "GGUF model", "a file that begins with GGUF", None, "the file holds every tensor that its header names",
    ),
    "verl": FormatWords(
        "verl checkpoint with files per rank", "files named `..._world_size_W_rank_R.pt`",
        None, "all W ranks' files are there and whole",
    ),
    "composer": FormatWords(
        "Composer checkpoint with files per rank", "files named `epE-baB-rankR.pt`",
        None, "the ranks have no gap and every file is whole",
    ),
    "fairseq": FormatWords(
        "fairseq checkpoint with files per shard", "files named `checkpoint_E_U...-shardN.pt`",
        None, "the shards have no gap and every file is whole",
    ),
    "fairseq2": FormatWords(
        "fairseq2 checkpoint", "`trainer/rank_R.pt` beside `model/` and `optimizer/`, with a file per rank",
        "the final name without `.tmp`", "the grid of ranks is full, for the optimizer too, and every file is whole",
    ),
    "torchtune": FormatWords(
        "torchtune checkpoint", "`recipe_state.pt` beside the weights of epochs",
        None, "the newest weights are whole, and the state beside them is of the same epoch",
    ),
    "colossalai": FormatWords(
        "ColossalAI checkpoint", "`running_states.json` beside `modeling/` or `model/`, and `optimizer/` with an index",
        "`running_states.json`, written last", "every file that the two indexes name is there and whole",
    ),
    "tensorflow": FormatWords(
        "TensorFlow checkpoint", "an `.index` beside `.data-00000-of-00001`",
        "the `.index`, written last", "the index can be read and each data file ends where its last tensor does",
    ),
    "flax": FormatWords(
        "file of flax", "one msgpack value of arrays, as `save_checkpoint` without Orbax leaves it",
        None, "the value ends exactly at the file's end",
    ),
    "easylm": FormatWords(
        "streamed file of EasyLM", "paths of arrays, each with flax's bytes of the array behind it",
        None, "the last pair ends exactly at the file's end",
    ),
    "neuronx": FormatWords(
        "NeuronX Distributed checkpoint", "files such as `model/dp_rank_00_tp_rank_00_pp_rank_00.pt`",
        "`done`", "every rank that the names span has its files, and every file is whole",
    ),
    "levanter": FormatWords(
        "Levanter checkpoint", "`metadata.json` with a step and a time beside folders of zarr arrays",
        "`metadata.json`", "every array has its description, and its chunks have the size that this says",
    ),
    "keras": FormatWords(
        "file of Keras", "HDF5 with the groups that Keras makes, or a `.keras` zip with one inside",
        None, "the file ends where its own head says, and its groups lead to data inside of it",
    ),
    "nanotron": FormatWords(
        "Nanotron checkpoint", "`checkpoint_metadata.json` beside `model/`",
        "`checkpoint_metadata.json`", "every rank that the names count has its files, and every file is whole",
    ),
    "basicsr": FormatWords(
        "BasicSR checkpoint", "`models/net_*_N.pth` with `training_states/N.state` beside it",
        None, "every network that other iterations have is there, and every file is whole",
    ),
}  # fmt: skip

UNKNOWN_WORDS = FormatWords(
    "format that this version does not know", "no evidence of any format that it does know", None, "nothing can be said"
)


def words_of(format_name: str) -> FormatWords:
    """The words for a format; those of an unknown one for a format of a newer version."""
    return FORMAT_WORDS.get(format_name, UNKNOWN_WORDS)
