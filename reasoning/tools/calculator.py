"""A calculator: exact arithmetic on what is written, and nothing else."""

import ast
import operator
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

from .tool import Tool

MOST_BITS = 4096
"""Of a number on the way: what is larger is refused, not computed."""

_DIGITS = 12
_LONGEST = 1000

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}


async def calculate(expression: str) -> str:
    """Compute an expression of numbers with + - * / // % ** and brackets, exactly."""
    return evaluate(expression)


CALCULATOR = Tool.of(calculate, name="calculator")


def evaluate(expression: str) -> str:
    """The value: a whole number, or a decimal of at most 12 digits. Raises `ValueError` in one line."""
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression of {len(expression)} characters: give at most {_LONGEST}")
    text = expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-")
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is no expression") from None
    if value.denominator == 1:
        return str(value.numerator)
    with localcontext(prec=_DIGITS):
        return f"{(Decimal(value.numerator) / Decimal(value.denominator)).normalize():f}"


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
    raise ValueError(f"{ast.unparse(node)!r} is no number")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("exponents must be whole numbers")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > MOST_BITS:
        raise ValueError("the power is too large")
    return _bounded(base**exponent.numerator)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise ValueError("the number is too large")
    return value
