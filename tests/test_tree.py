"""The shape of the project: imports follow the data, public names are true, and nothing heavy is imported early."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import podium

ROOT = Path(podium.__file__).parent
ORDER = "errors plain registry outside expression interval trace graph rewards credit methods metrics audit envs engine harness exchange gateway learn study pool view cli".split()
MODULES = sorted(m.name for m in pkgutil.walk_packages([str(ROOT)], "podium.") if not m.name.endswith("._scan"))


def upstream_imports(module: str, source: str) -> list[str]:
    """Every import in `source` that points against the flow of data."""
    named: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            named += (
                [f"{node.module}.{a.name}" for a in node.names] if node.module == "podium" else [node.module or ""]
            )
        elif isinstance(node, ast.Import):
            named += [a.name for a in node.names]
    parts = [n.split(".")[1] for n in named if n.startswith("podium.")]
    return [p for p in parts if p in ORDER and ORDER.index(p) > ORDER.index(module)]


@pytest.mark.parametrize(
    "path", sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem in ORDER), ids=str
)
def test_imports_follow_the_data(path: Path) -> None:
    module = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert module in ORDER, f"{module} has no place in the flow of data; give it one in ORDER and in docs/design.md"
    assert upstream_imports(module, path.read_text()) == []


def test_the_check_bites() -> None:
    assert upstream_imports("trace", "from podium.graph import taint") == ["graph"]
    assert upstream_imports("trace", "import podium.view.page") == ["view"]
    assert upstream_imports("graph", "from podium import view") == ["view"]
    assert upstream_imports("graph", "from podium.trace.columns import Trace") == []


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist(name: str) -> None:
    if name == "podium.engine.kernels":
        pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for CUDA")
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), f"{name}.__all__ names {public}, which is not there"
    if module.__file__ and "__init__" not in module.__file__:
        assert hasattr(module, "__all__"), f"{name} does not say what is public"


def test_nothing_heavy_is_imported_until_it_is_used() -> None:
    code = "import sys, podium, podium.cli; print([m for m in ('pyarrow', 'duckdb', 'torch', 'networkx', 'httpx', 'starlette') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
