"""The names that files written by `torch.save` may hold, as a closed list, and what any other name means.

Nothing here is ever imported: a name only decides whether the reading may go on quietly.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from muster_agent.formats.dcp_metadata import CLASSES
from muster_agent.formats.dcp_plan import DTYPE_BITS
from muster_agent.formats.pickle_machine import GETATTR, Record, Symbol, is_member_of_class
from muster_agent.formats.python_names import HARMLESS, is_harmless_reference

STORAGE_DTYPES: dict[str, str] = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
}


def _names(modules: dict[str, str]) -> set[str]:
    return {f"{module}.{name}" for module, names in modules.items() for name in names.split()}


_PATHS = "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"
_BUILTIN_TYPES = "bool bytearray bytes complex dict float frozenset int list object range set slice str tuple"
_NUMPY_TYPES = (
    "bool bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 complex128 str_"
)
_ENUMS_AND_ARGUMENTS = {
    "transformers.trainer_utils": "IntervalStrategy SaveStrategy HubStrategy SchedulerType EvaluationStrategy "
    "FSDPOption",
    "transformers.training_args": "TrainingArguments OptimizerNames ParallelMode",
    "transformers.training_args_seq2seq": "Seq2SeqTrainingArguments",
    "transformers.trainer_pt_utils": "AcceleratorConfig",
    "transformers.debug_utils": "DebugOption",
    "transformers.integrations.deepspeed": "HfTrainerDeepSpeedConfig HfDeepSpeedConfig",
    "accelerate.state": "PartialState AcceleratorState",
    "accelerate.utils.dataclasses": "DistributedType DeepSpeedPlugin FullyShardedDataParallelPlugin DynamoBackend "
    "GradientAccumulationPlugin DataLoaderConfiguration ComputeEnvironment",
    "deepspeed.runtime.fp16.loss_scaler": "LossScaler DynamicLossScaler",
    "deepspeed.runtime.zero.config": "ZeroStageEnum",
    "deepspeed.runtime.zero.offload_config": "OffloadDeviceEnum",
    "deepspeed.utils.tensor_fragment": "fragment_address tensor_fragment",
    "megatron.core.enums": "ModelType Fp8Recipe Fp4Recipe",
    "megatron.core.transformer.enums": "AttnBackend AttnMaskType AttnType LayerType ModelType CudaGraphScope",
    "megatron.core.rerun_state_machine": "RerunMode RerunState RerunDiagnostic RerunDataIterator RerunErrorInjector",
    "megatron.core.optimizer.optimizer_config": "OptimizerConfig ParamKey ParamPredicate",
    "megatron.core.transformer.transformer_config": "TransformerConfig MLATransformerConfig",
    "megatron.model.enums": "AttnMaskType AttnType LayerType ModelType PositionEmbeddingType",
    "lightning.fabric.utilities.data": "AttributeDict",
    "lightning.pytorch.utilities.parsing": "AttributeDict",
    "lightning_fabric.utilities.data": "AttributeDict",
    "pytorch_lightning.utilities.parsing": "AttributeDict",
    "omegaconf.dictconfig": "DictConfig",
    "omegaconf.listconfig": "ListConfig",
    "omegaconf.base": "ContainerMetadata Metadata SCMode UnionNode",
    "omegaconf.nodes": "AnyNode BooleanNode BytesNode EnumNode FloatNode IntegerNode PathNode StringNode ValueNode",
}
_DTENSOR = "DTensorSpec TensorMeta ShardOrderEntry"
_PLACEMENTS = "Placement Shard Replicate Partial _Partial _StridedShard MaskPartial"
CALLABLE: frozenset[str] = frozenset(
    _names(
        {
            "torch": "Size device Tensor Generator",
            "torch._C": "Generator",
            "torch._utils": "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter "
            "_rebuild_parameter_with_state _rebuild_qtensor _rebuild_sparse_tensor _rebuild_sparse_csr_tensor "
            "_rebuild_nested_tensor _rebuild_wrapper_subclass _rebuild_meta_tensor_no_storage "
            "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor _rebuild_xla_tensor",
            "torch._tensor": "_rebuild_from_type _rebuild_from_type_v2",
            "torch.serialization": "_get_layout",
            "torch.storage": "TypedStorage UntypedStorage _TypedStorage _UntypedStorage _load_from_bytes",
            "torch.nn.parameter": "Parameter Buffer UninitializedParameter UninitializedBuffer",
            "torch.torch_version": "TorchVersion",
            "torch.jit._pickle": "build_boollist build_doublelist build_intlist build_tensorlist "
            "build_tensor_from_id restore_type_tag",
            "torch.distributed._mesh_layout": "_FlatLayout _MeshLayout",
            "torch.distributed.device_mesh": "DeviceMesh",
            "torch.distributed.tensor": "DTensor",
            "torch.distributed.tensor._api": "DTensor",
            "torch.distributed._tensor": "DTensor",
            "torch.distributed._tensor.api": "DTensor",
            "torch.distributed.tensor._dtensor_spec": _DTENSOR,
            "torch.distributed._tensor._dtensor_spec": _DTENSOR,
            "torch.distributed._tensor.placement_types": f"{_DTENSOR} {_PLACEMENTS}",
            "torch.distributed.tensor.placement_types": _PLACEMENTS,
            "torch.distributed._shard.metadata": "ShardMetadata",
            "torch.distributed._shard.sharded_tensor.api": "ShardedTensor ShardedTensorBase",
            "torch.distributed._shard.sharded_tensor.metadata": "ShardedTensorMetadata TensorProperties "
            "MEM_FORMAT_ENCODING",
            "torch.distributed._shard.sharded_tensor.shard": "Shard",
            "torch.distributed._shard.sharding_spec.api": "EnumerableShardingSpec",
            "torch.distributed._shard.sharding_spec.chunk_sharding_spec": "ChunkShardingSpec",
            "torch.distributed.remote_device": "_remote_device",
            **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), "_reconstruct scalar"),
            **dict.fromkeys(("numpy.core.numeric", "numpy._core.numeric"), "_frombuffer"),
            "numpy": f"ndarray dtype {_NUMPY_TYPES}",
            "numpy.dtypes": "BoolDType Float16DType Float32DType Float64DType Int8DType Int16DType Int32DType "
            "Int64DType UInt8DType UInt16DType UInt32DType UInt64DType StrDType ObjectDType",
            "numpy.random._pickle": "__bit_generator_ctor __generator_ctor __randomstate_ctor",
            "numpy.random._mt19937": "MT19937",
            "numpy.random._pcg64": "PCG64 PCG64DXSM",
            "numpy.random._philox": "Philox",
            "numpy.random._sfc64": "SFC64",
            "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
            "builtins": _BUILTIN_TYPES,
            "collections": "Counter OrderedDict defaultdict deque",
            "copyreg": "_reconstructor __newobj__",
            "_codecs": "encode",
            "argparse": "Namespace",
            "types": "SimpleNamespace",
            "functools": "partial",
            "random": "Random",
            "pathlib": _PATHS,
            "pathlib._local": _PATHS,
            "datetime": "date datetime time timedelta timezone",
            "decimal": "Decimal",
            "fractions": "Fraction",
            "uuid": "UUID SafeUUID",
            **_ENUMS_AND_ARGUMENTS,
        }
    )
    | CLASSES
    | HARMLESS
)
"""Names that may be called or made: building them runs nothing that the file chose."""

_REFERRED = (
    {f"torch.{dtype}" for dtype in DTYPE_BITS}
    | {f"torch.{device}{storage}" for device in ("", "cuda.", "storage.") for storage in STORAGE_DTYPES}
    | _names(
        {
            "torch": "strided sparse_coo sparse_csr sparse_csc jagged contiguous_format channels_last "
            "channels_last_3d preserve_format per_tensor_affine per_channel_affine per_tensor_symmetric "
            "per_channel_symmetric FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor "
            "ShortTensor CharTensor ByteTensor BoolTensor",
            "builtins": "Ellipsis NotImplemented",
            "typing": "Any Dict FrozenSet List Literal Optional Set Tuple Type Union",
        }
    )
)
ALLOWED: frozenset[str] = CALLABLE | _REFERRED

_STANDARD_LIBRARY = sys.stdlib_module_names | {"__builtin__", "commands", "copy_reg", "exceptions", "nt", "posix"}
FLAGS = "_operator.or_"
_SCRIPT = "__torch__."
"""TorchScript's own classes, which live as text in the same archive."""
_OLD_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "exceptions": "builtins",
    "_abcoll": "collections.abc",
}
_OLD_TYPES = {"builtins.unicode": "builtins.str", "builtins.long": "builtins.int", "builtins.xrange": "builtins.range"}


def full_name(module: str, name: str) -> str:
    """`module.name`, with Python 2's words for the built-in modules and types given as today's."""
    full = f"{_OLD_MODULES.get(module, module)}.{name}"
    return _OLD_TYPES.get(full, full)


def is_allowed(full: str) -> bool:
    return full in ALLOWED or full.startswith(_SCRIPT) or is_harmless_reference(full)


def may_be_called(full: str, args: object) -> bool:
    """Whether the call makes a value. The type of None, and of its like, is pickled as a call of `type`; a class inside
    another, and a member of an enumeration, as calls of `getattr`; several flags as calls of `or_`."""
    if full == "builtins.type":
        return type(args) is tuple and len(args) == 1 and (args[0] is None or _is_single(args[0]))
    if full == GETATTR:
        return is_member_of_class(args) and _CLASS.search(args[0].name) is not None
    if full == FLAGS:
        return type(args) is tuple and len(args) == 2 and all(isinstance(arg, (Symbol, Record, int)) for arg in args)
    return full in CALLABLE or full.startswith(_SCRIPT)


def _is_single(value: Any) -> bool:
    return getattr(value, "name", None) in ("builtins.Ellipsis", "builtins.NotImplemented")


def is_class_with_a_value(full: str, args: object) -> bool:
    """Whether it looks like a member of a script's enumeration, or a dictionary of its own: a class that is called with
    one plain value or with none. Such a class is needed for loading, and the call does no more than that needs."""
    if is_standard_library(full) or is_of_torch(full) or not _CLASS.search(full):
        return False
    if full.split(".", 1)[0] in _RUNNERS or full.endswith(".Popen"):
        return False
    return type(args) is tuple and (not args or (len(args) == 1 and _is_plain(args[0])))


def _is_plain(value: object) -> bool:
    return type(value) in (bool, int, float) or (type(value) is str and len(value) <= _MAX_VALUE_LETTERS)


_CLASS = re.compile(r"\._*[A-Z]\w*$", re.ASCII)
_MAX_VALUE_LETTERS = 100
_RUNNERS = frozenset(
    {
        *("IPython", "cloudpickle", "dill", "fabric", "jinja2", "joblib", "numpy", "pandas", "paramiko", "pexpect"),
        *("plumbum", "psutil", "six", "sh", "subprocess32"),
    }
)
"""Libraries whose classes act, or read files, when they are made."""
_TORCH_RUNS = re.compile(
    r"torch\.(?:hub|package|classes|ops|multiprocessing|distributed\.(?:launch|run|elastic|rpc)"
    r"|utils\.(?:cpp_extension|model_zoo|data\.datapipes|bottleneck|collect_env))(?:\..*)?"
    r"|torch\.(?:\w+\.)*(?:load\w*|save|compile|CompilationUnit|exec\w*|import\w*|_?unsafe\w*)"
    r"|numpy\.(?:\w+\.)*(?:load\w*|fromfile|memmap|genfromtxt|runstring)",
    re.ASCII,
)


def is_of_torch(full: str) -> bool:
    return full.startswith("torch.")


def is_unsafe_reference(full: str) -> bool:
    """Whether loading would reach into Python's own library beyond what the list allows, or into a part of PyTorch or
    numpy that loads and runs things. Modules, optimizers and functions of PyTorch are neither unsafe nor foreign."""
    return is_standard_library(full) or _TORCH_RUNS.fullmatch(full) is not None


def is_standard_library(full: str) -> bool:
    return full.split(".", 1)[0] in _STANDARD_LIBRARY


def shortened(names: Iterable[str], limit: int = 5) -> str:
    """A few of the names for a sentence, in order."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ascii(name[:100]) for name in ordered[:limit]) + more
