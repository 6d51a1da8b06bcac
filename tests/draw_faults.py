"""Draws deliberate faults at random: an operator, a sign, an axis or a default of a line that nobody chose.

    python -m tests.draw_faults gam 10 54        ten in the room ``gam``, by the seed 54

What it prints was pasted into ``tests/faults.txt``, survivors too: a fault is not left out because no test sees it.
"""

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "numpyro_gp"
ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
COMPARED = {ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Gt: (">", "<="), ast.GtE: (">=", "<")}
COMPARED |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
JOINED = {ast.And: (" and ", " or "), ast.Or: (" or ", " and ")}


def changes(tree: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr | None, str, str]]:
    """What kind of change, the nodes between which (or the node in which) it stands, and the two texts."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                yield "operator", left, right, *ARITHMETIC[type(op)]
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                yield "operator", left, right, *COMPARED[type(op)]
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield "operator", left, right, *JOINED[type(op)]
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
                yield "sign", node, None, "-", ""
            case ast.keyword(arg="axis", value=value):
                text = ast.unparse(value)
                yield "axis", value, None, text, "0" if text != "0" else "-1"
            case ast.FunctionDef(args=args):
                for value in [*args.defaults, *filter(None, args.kw_defaults)]:
                    if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | float):
                        known = value.value
                        yield (
                            "default",
                            value,
                            None,
                            str(known),
                            str(not known if isinstance(known, bool) else known + 1),
                        )


def faults(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """All changes of a file whose line stands once in it: kind, name of the file, the line and the changed line."""
    text = file.read_text()
    lines = text.splitlines()
    for kind, first, second, old, new in changes(ast.parse(text)):
        line = lines[first.end_lineno - 1]
        begin, end = (first.col_offset, first.end_col_offset)
        if second is not None:
            begin, end = first.end_col_offset, second.col_offset
        one = first.end_lineno == (second or first).lineno and text.count(line.strip()) == 1 and line.isascii()
        if one and old in line[begin:end]:
            changed = line[:begin] + line[begin:end].replace(old, new, 1) + line[end:]
            yield kind, str(file.relative_to(PACKAGE)), line.strip(), changed.strip()


def main() -> None:
    room, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = [fault for file in sorted((PACKAGE / room).rglob("*.py")) for fault in faults(file)]
    for kind, file, old, new in random.Random(seed).sample(found, count):
        folder, _, name = file.rpartition("/")
        print(f"@ {kind} at random | {file} | {folder}/test_{name}\n- {old}\n+ {new}")


if __name__ == "__main__":
    main()
