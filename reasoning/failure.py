"""Errors of strategy authors as one line."""


def single(error: BaseException) -> BaseException:
    """The one error inside of nested task groups, where there is one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def said(error: BaseException) -> str:
    """What an error says of itself, never empty."""
    if isinstance(error, SystemExit):
        return f"the strategy called sys.exit({'' if error.code is None else repr(error.code)})"
    return str(error) or type(error).__name__
