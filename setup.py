"""Builds the C++ extension through CMake, in a folder that is kept: an edit rebuilds one file."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    import torch
except ImportError:
    sys.exit(
        "g2c is built against the torch that you have: install torch, then run "
        "`pip install . --no-build-isolation`"
    )

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Configures once, builds, and installs the libraries into the package."""

    def run(self) -> None:
        release = torch.__version__.split("+")[0]
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        folder = ROOT / "build" / f"torch-{release}-py{python}"
        package = ROOT / "python" if self.inplace else Path(self.build_lib).resolve()
        cmake = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
        cmake += [f"-DPython_EXECUTABLE={sys.executable}"]
        cmake += [f"-DG2C_TESTS={os.environ.get('G2C_BUILD_TESTS', 'OFF')}"]
        # CMake and Ninja from the environment that Python runs in, before others.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path}
        install = ["--install", str(folder), "--component", "python"]
        try:
            subprocess.run(cmake, check=True, env=environment)
            subprocess.run(["cmake", "--build", str(folder)], check=True, env=environment)
            subprocess.run(["cmake", *install, "--prefix", str(package / "g2c")], check=True, env=environment)
        except FileNotFoundError:
            sys.exit("g2c needs CMake and Ninja: run `pip install cmake ninja`")
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)

    def get_outputs(self) -> list[str]:
        package = Path(self.build_lib) / "g2c"
        return [str(path) for path in package.glob("*") if path.suffix in {".so", ".dylib"}]


setup(ext_modules=[Extension("g2c._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
