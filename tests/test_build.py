"""The extension fits the torch that imports it, and brings no runtime of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import g2c
from g2c import _C

ROOT = Path(__file__).parent.parent
PACKAGE = Path(g2c.__file__).parent


def test_another_torch_is_named_in_one_line():
    code = (
        "import sys, types; info = types.ModuleType('g2c._build_info'); info.TORCH_VERSION = '2.0.1';"
        "sys.modules['g2c._build_info'] = info; import g2c"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: g2c was built against torch 2.0.1 but")
    assert torch.__version__ in message and "--no-build-isolation" in message


def test_a_missing_extension_is_named_in_one_line():
    code = "import sys; sys.modules['g2c._build_info'] = None; import g2c"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "pip install -e . --no-build-isolation" in result.stderr.strip().splitlines()[-1]


def test_building_without_torch_names_the_flag(tmp_path):
    # As in pip's isolated build environment: a Python that finds no torch.
    (tmp_path / "torch.py").write_text("raise ImportError('no torch')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "setup.py", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert result.returncode != 0
    assert len(result.stderr.strip().splitlines()) == 1
    assert "--no-build-isolation" in result.stderr


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("readelf"), reason="needs Linux and readelf")
def test_no_second_openmp_runtime_is_linked():
    for library in (PACKAGE / "libg2c.so", Path(_C.__file__)):
        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
        assert "NEEDED" in needed
        assert "omp" not in needed.lower()


def test_the_ops_library_works_without_the_python_modules():
    code = (
        f"import torch; torch.ops.load_library({str(PACKAGE / 'libg2c.so')!r});"
        "import sys; assert 'g2c' not in sys.modules;"
        "print(torch.ops.g2c.feature_map(torch.zeros(1)).item())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.strip() == "1.0", result.stderr
