"""The normal form of an infix expression: one text for all orders and groupings that mean the same formula.

Sums and products are flattened through brackets, subtraction and division, and their operands sorted.
Nothing is multiplied out and no value is computed, so `2*6` and `3*4` differ.
"""

import ast
import re

_EXPRESSION = re.compile(r"[\d+\-*/() ]{1,200}")

_SUM = (ast.Add, ast.Sub)


def normal_form(expression: str) -> str | None:
    """The normal form, or None where the text is no expression over whole numbers, + - * / and brackets."""
    text = expression.strip()
    if not _EXPRESSION.fullmatch(text):
        return None
    try:
        return _sum_text(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sum_text(node: ast.expr) -> str:
    added: list[str] = []
    subtracted: list[str] = []
    _collect_terms(node, added, subtracted)
    return "+".join(sorted(added)) + "".join(f"-{term}" for term in sorted(subtracted))


def _collect_terms(node: ast.expr, added: list[str], subtracted: list[str]) -> None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SUM):
        _collect_terms(node.left, added, subtracted)
        if isinstance(node.op, ast.Add):
            _collect_terms(node.right, added, subtracted)
        else:
            _collect_terms(node.right, subtracted, added)
    else:
        added.append(_product_text(node))


def _product_text(node: ast.expr) -> str:
    multiplied: list[str] = []
    divided: list[str] = []
    _collect_factors(node, multiplied, divided)
    return "*".join(sorted(multiplied)) + "".join(f"/{factor}" for factor in sorted(divided))


def _collect_factors(node: ast.expr, multiplied: list[str], divided: list[str]) -> None:
    match node:
        case ast.BinOp(op=ast.Mult()):
            _collect_factors(node.left, multiplied, divided)
            _collect_factors(node.right, multiplied, divided)
        case ast.BinOp(op=ast.Div()):
            _collect_factors(node.left, multiplied, divided)
            _collect_factors(node.right, divided, multiplied)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            multiplied.append(f"({_sum_text(node)})")
        case ast.Constant(value=int() as number):
            multiplied.append(str(number))
        case _:
            raise ValueError(f"not allowed in an expression: {ast.dump(node)}")
