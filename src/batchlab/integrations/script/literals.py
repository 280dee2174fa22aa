"""What can be read from a source without running it: values of literals, and names of what is called."""

from __future__ import annotations

import ast


def called(call: ast.Call) -> str:
    """The last name of what is called: `option` for `click.option(…)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def literal(node: ast.expr) -> object:
    """The value of a literal, of simple arithmetic over numbers too; None for anything else."""
    if isinstance(node, ast.BinOp):
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            match node.op:
                case ast.Mult():
                    return left * right
                case ast.Pow() if abs(right) < 64:
                    return left**right
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
