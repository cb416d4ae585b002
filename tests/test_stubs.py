"""The stub of the compiled module names what is there, and all of it."""

import ast
from pathlib import Path

from g2c import _C

STUB = ast.parse((Path(__file__).parent.parent / "python/g2c/_C.pyi").read_text())


def members(nodes):
    names = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def test_module_members():
    assert members(STUB.body) == public(_C)


def test_class_members():
    for node in STUB.body:
        if isinstance(node, ast.ClassDef):
            stubbed = {name for name in members(node.body) if not name.startswith("_")}
            compiled = getattr(_C, node.name)
            inherited = set().union(*(public(base) for base in compiled.__mro__[1:]))
            assert public(compiled) - inherited <= stubbed, node.name
            assert all(hasattr(compiled, name) for name in members(node.body)), node.name
