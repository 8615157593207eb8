r"""Whether two formulas are equal: the far side of the symbolic tier, run in a worker process.

The text is read by the parser of math-verify (latex2sympy2-extended), and compared here: by value at random
points to 30 digits, relative to size, the same whichever comes first. math-verify's own comparison is not
used: it calls 1/2004! and 1/2006! equal, and which formula is the gold one matters to it. A text of
which the parser would drop a part (a base as subscript, an overline, words) is not read at all.
"""

import random
import re
from typing import Any

DIGITS = 50
AGREEING_DIGITS = 30
POINTS = 6
TEXT_MAX = 400

_READABLE = re.compile(
    "frac|sqrt|pi|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|binom|infty|le|ge|ne|cdot|times|"
    "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau|phi|psi|omega|begin|end"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_ALLOWED = re.compile(r"[0-9A-Za-z\s+\-*/^(){}\[\]=!.|<>,&\\_]*")
_SUBSCRIPT = re.compile(r"(?<!\\log)(?<![A-Za-z])_|_(?!\{?\w+\}?)")
_PLAIN_FUNCTIONS = re.compile(
    r"(?<![\\A-Za-z])(sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|theta)(?![A-Za-z])"
)
_PLAIN_ROOT = re.compile(r"\\sqrt\s*\(([^()]*)\)")
_SHORT_ARGUMENT = r"(?:(?<=\\frac)|(?<=\\sqrt)|(?<=\\binom))\s*(\d|[A-Za-z](?![A-Za-z])|\\pi(?![A-Za-z]))"
_SHORT_FIRST = re.compile(_SHORT_ARGUMENT)
_SHORT_SECOND = re.compile(r"(\\(?:frac|binom)\s*\{(?:[^{}]|\{[^{}]*\})*\})\s*(\d|[A-Za-z](?![A-Za-z]))")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_MATRIX = re.compile(r"\\(?:begin|end)\{[pbvBV]?matrix\}")
_LOG_BASE = re.compile(r"\\log_(\w)")
_DECIMAL = re.compile(r"(\d*)\.(\d+)|(\d+)\.(?!\d)")


def compare(first: str, second: str) -> bool | None:
    """Whether two formulas are equal; None where one of them cannot be read or valued.

    Equations are equal where one is a multiple of the other; `y = f` and the bare `f` are equal.
    """
    left, right = read(first), read(second)
    if left is None or right is None:
        return None
    return _same(left, right)


def read(text: str) -> Any | None:
    """The sympy object of a formula, None where the text is none or would not be read whole."""
    latex = _latex(text)
    if latex is None:
        return None
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    config = ConversionConfig(interpret_as_mixed_fractions=True, lowercase_symbols=False)
    try:
        found = latex2sympy(latex, normalization_config=None, conversion_config=config)
    except Exception:  # the parser raises whatever its grammar meets
        return None
    return _with_constants(found)


def _latex(text: str) -> str | None:
    latex = _PLAIN_FUNCTIONS.sub(r"\\\1", text.replace("**", "^"))
    latex = re.sub(r"\\(?:mathrm|text|operatorname)\{([A-Za-z])\}", r"\1", latex)
    latex = _PLAIN_ROOT.sub(r"\\sqrt{\1}", latex)
    latex = _DECIMAL.sub(_as_fraction, _LOG_BASE.sub(r"\\log_{\1}", latex))
    latex = _SHORT_SECOND.sub(r"\1{\2}", _SHORT_FIRST.sub(r"{\1}", latex))
    readable = (
        len(latex) <= TEXT_MAX
        and _ALLOWED.fullmatch(latex) is not None
        and all(_READABLE.fullmatch(command) for command in _COMMAND.findall(latex))
        and not _SUBSCRIPT.search(latex)
        and not _LONG_WORD.search(_COMMAND.sub(" ", _MATRIX.sub(" ", latex)))
        and not re.search(r"\d\s+\d|\d[eE][-+]?\d|\.", latex)
    )
    return latex if readable else None


def _as_fraction(match: re.Match[str]) -> str:
    """A decimal as an exact fraction; the parser would round it."""
    if match[3]:
        return match[3]
    return rf"(\frac{{{int(match[1] + match[2])}}}{{{10 ** len(match[2])}}})"


def _with_constants(found: Any) -> Any:
    """The same with `e` and `i` as the numbers they are by custom."""
    import sympy

    names = {"e": sympy.E, "i": sympy.I}
    symbols = getattr(found, "free_symbols", set())
    swaps = {symbol: names[symbol.name] for symbol in symbols if symbol.name in names}
    return found.subs(swaps) if swaps else found


def _same(left: Any, right: Any) -> bool | None:
    import sympy

    if isinstance(left, sympy.MatrixBase) or isinstance(right, sympy.MatrixBase):
        return _same_matrices(left, right)
    if isinstance(left, sympy.Eq) and isinstance(right, sympy.Eq):
        return _proportional(_difference(left), _difference(right))
    if isinstance(left, sympy.Eq) or isinstance(right, sympy.Eq):
        return _solved(left, right)
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return None
    return _equal_values(left, right)


def _difference(equation: Any) -> Any:
    return equation.lhs - equation.rhs


def _solved(left: Any, right: Any) -> bool | None:
    """`y = f` beside a bare `f`."""
    import sympy

    equation, bare = (left, right) if isinstance(left, sympy.Eq) else (right, left)
    if not isinstance(bare, sympy.Expr):
        return None
    named = isinstance(equation.lhs, sympy.Symbol) and equation.lhs not in bare.free_symbols
    return _equal_values(equation.rhs, bare) if named else False


def _same_matrices(left: Any, right: Any) -> bool | None:
    import sympy

    if not (isinstance(left, sympy.MatrixBase) and isinstance(right, sympy.MatrixBase)):
        return False
    if left.shape != right.shape:
        return False
    verdicts = [_same(a, b) for a, b in zip(left.flat(), right.flat(), strict=True)]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _equal_values(left: Any, right: Any) -> bool | None:
    """Equal at every random point where both are real; as complex numbers where they never are."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=lambda symbol: symbol.name)
    pairs = [_values((left, right), point) for point in _points(symbols)]
    known = [pair for pair in pairs if pair is not None]
    real = [pair for pair in known if all(value.is_real for value in pair)]
    verdicts = [_close(*pair) for pair in real or known]
    return all(verdicts) if verdicts else None


def _proportional(left: Any, right: Any) -> bool | None:
    symbols = sorted(left.free_symbols | right.free_symbols, key=lambda symbol: symbol.name)
    if not symbols:
        return None
    pairs = [_values((left, right), point) for point in _points(symbols)]
    known = [pair for pair in pairs if pair is not None and pair[0] != 0 and pair[1] != 0]
    if len(known) < 2:
        return None
    (first, factor), rest = known[0], known[1:]
    return all(_close(a * factor, b * first) for a, b in rest)


def _points(symbols: list[Any]) -> list[dict[Any, Any]]:
    """The same points in every process: half of them positive, the others of either sign."""
    import sympy

    if not symbols:
        return [{}]
    rng = random.Random(0)
    points = []
    for index in range(POINTS):
        lowest = 1 if index < POINTS // 2 else -4000
        points.append({symbol: sympy.Rational(rng.randint(lowest, 4000), 997) for symbol in symbols})
    return points


def _values(formulas: tuple[Any, ...], point: dict[Any, Any]) -> tuple[Any, ...] | None:
    values = []
    for formula in formulas:
        value = formula.subs(point).doit().evalf(DIGITS, maxn=20 * DIGITS)
        if not value.is_number or value.has("nan", "zoo") or not value.is_finite:
            return None
        values.append(value)
    return tuple(values)


def _close(left: Any, right: Any) -> bool:
    difference, size = abs(left - right), max(abs(left), abs(right))
    return bool(difference <= size * 10**-AGREEING_DIGITS)
