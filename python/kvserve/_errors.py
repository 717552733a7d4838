"""One exception class per error code of the library."""


class KVServeError(Exception):
    """Anything that KVServe refuses or fails at.

    code: the number of include/kvserve/error.h, also used on the wire and by the C ABI.
    name: its stable lower-case name, such as "corrupt_data".
    """

    code = 1
    name = "internal"


class InternalError(KVServeError):
    """A fault of KVServe's own."""


class InvalidArgumentError(KVServeError, ValueError):
    """Wrong usage or configuration."""

    code, name = 2, "invalid_argument"


class BadInputError(KVServeError, ValueError):
    """A file or tensor that cannot be used as asked."""

    code, name = 3, "bad_input"


class CorruptDataError(KVServeError):
    """Bytes that contradict their own checksum, lengths or format."""

    code, name = 4, "corrupt_data"


class UnavailableError(KVServeError, ConnectionError):
    """Peer or store not reachable."""

    code, name = 5, "unavailable"


class BudgetExceededError(KVServeError):
    """Quality or SLO cannot be met."""

    code, name = 6, "budget_exceeded"


class UnsupportedError(KVServeError):
    """Well-formed, but this build does not do it: version, dtype, stage."""

    code, name = 7, "unsupported"


class MismatchError(KVServeError):
    """Two sides do not fit: model, geometry, protocol, key."""

    code, name = 8, "mismatch"


class DeadlineExceededError(KVServeError, TimeoutError):
    """The request's deadline passed."""

    code, name = 9, "deadline_exceeded"


class CancelledError(KVServeError):
    """The caller or the peer gave up."""

    code, name = 10, "cancelled"


class ResourceExhaustedError(KVServeError):
    """A stated limit (memory, queue, connections) would be passed."""

    code, name = 11, "resource_exhausted"


class PermissionDeniedError(KVServeError, PermissionError):
    """Wrong or missing token."""

    code, name = 12, "permission_denied"


ERROR_CLASSES: dict[int, type[KVServeError]] = {
    cls.code: cls
    for cls in (InternalError, InvalidArgumentError, BadInputError, CorruptDataError,
                UnavailableError, BudgetExceededError, UnsupportedError, MismatchError,
                DeadlineExceededError, CancelledError, ResourceExhaustedError,
                PermissionDeniedError)
}


def error_of(code: int, message: str) -> KVServeError:
    """The exception of an error code; of a code that is not known, KVServeError with that code."""
    cls = ERROR_CLASSES.get(code)
    if cls is not None:
        return cls(message)
    error = KVServeError(message)
    error.code = code
    error.name = "unknown"
    return error
