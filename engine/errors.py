"""The errors a caller can meet: each message says what was wrong, with which value, and what would be
right."""


class BranchwiseError(Exception):
    """Root of every error this package raises on purpose; `exit_status` is the command line's."""

    exit_status = 3


class UsageError(BranchwiseError):
    """The caller asked for something that cannot be: wrong input, unknown name, value out of range."""

    exit_status = 2


class CapacityError(UsageError):
    """A request that can never fit: prompt longer than the context, or more blocks than the pool has."""


class QueueFullError(BranchwiseError):
    """A tenant, or all together, have as many requests waiting as they may; try again when some have
    started."""


class ModelLoadError(UsageError):
    """A model folder or file that is missing, incomplete, damaged or of an unsupported architecture."""


class CapabilityError(UsageError):
    """A strategy or verifier needs what the back end or model does not offer."""


class HandleError(BranchwiseError):
    """A sequence or branch handle was used after release or prune, or while it was busy."""


class StepFailed(BranchwiseError):
    """A step of the engine raised; the requests that had rows in it fail, the engine goes on."""


class SamplingError(UsageError):
    """A row of logits from which the rules of a request leave no token to draw; it fails, no other does."""


class NumericsError(StepFailed):
    """The model gave a value that is not finite for a row of this request; other rows are unharmed."""


class EngineClosed(BranchwiseError):
    """The engine was closed while, or before, the request ran."""


class ServerFailed(StepFailed):
    """A remote server refused a request, or its reply cannot be read; others go on."""


class ServerLost(ServerFailed):
    """No server of a remote model answers, after all tries: the search cannot go on there."""
