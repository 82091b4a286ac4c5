"""The one build step that pyproject.toml cannot state: Python code from the .proto files."""

from __future__ import annotations

from pathlib import Path

from grpc_tools import protoc
from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path("src")


class BuildWithProtocols(build_py):
    """Puts the generated code beside its .proto file, where an editable install finds it too."""

    def run(self) -> None:
        """Compiles, then builds as ever."""
        for proto in sorted(SOURCES.rglob("*.proto")):
            paths = (f"-I{SOURCES}", f"--python_out={SOURCES}", f"--grpc_python_out={SOURCES}")
            if protoc.main(["protoc", *paths, proto.relative_to(SOURCES).as_posix()]):
                raise SystemExit(f"{proto} could not be compiled")
        super().run()


setup(cmdclass={"build_py": BuildWithProtocols})
