"""KVServe: how the KV cache of a large language model crosses a network.

    frame = kvserve.encode([(k, v), ...], "hadamard|uniform|rans")   # k, v: [token, head, dim]
    chunk = kvserve.decode(frame)                                    # chunk.numpy(), chunk.torch()

Works on torch CPU tensors and numpy arrays where they are; neither torch nor vLLM is needed.
docs/PYTHON.md has the whole.
"""

from ._errors import (BadInputError, BudgetExceededError, CancelledError, CorruptDataError,
                      DeadlineExceededError, ERROR_CLASSES, InternalError, InvalidArgumentError,
                      KVServeError, MismatchError, PermissionDeniedError, ResourceExhaustedError,
                      UnavailableError, UnsupportedError)
from ._native import (DTYPE_BYTES, VERSION as __version__, Calibration, Frame, Geometry, KvView,
                      Layer, NO_BLOCK, Profile, Request, prefix_key)
from ._stages import Parameter, Preset, Stage, presets, stages
from ._views import view
from .codec import Chunk, ChunkLayer, Decoder, Encoder, decode, encode
from .paged import PagedCache, PagedPlane
from .transfer import FetchReport, OfferReport, Receiver, Sender

__all__ = [
    "BadInputError", "BudgetExceededError", "CancelledError", "CorruptDataError",
    "DeadlineExceededError", "ERROR_CLASSES", "InternalError", "InvalidArgumentError",
    "KVServeError", "MismatchError", "PermissionDeniedError", "ResourceExhaustedError",
    "UnavailableError", "UnsupportedError", "DTYPE_BYTES", "__version__", "Calibration", "Frame",
    "Geometry", "KvView", "Layer", "Profile", "Request", "prefix_key", "Parameter", "Preset",
    "Stage", "presets", "stages", "view",
    "Chunk", "ChunkLayer", "Decoder", "Encoder", "decode", "encode",
    "NO_BLOCK", "PagedCache", "PagedPlane", "FetchReport", "OfferReport", "Receiver", "Sender",
]
