"""The package: its metadata, its one command, its place in torch, and the papers whose figures it has. Tool
settings are in pyproject.toml.

Host packages and the pinned versions are not repeated here: `scripts/setup.py` installs both. `pip install .`
takes the packages that the project imports itself, as they are pinned there; `testbed doctor` then says what
else the host needs.

The endpoint is compiled for the machine that compiles it. A wheel for others: OPTINC_MARCH=x86-64-v3 pip
wheel --no-deps . The backend of torch is not compiled here, but where torch is (workloads/native/build.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # pip leaves it out
from testbed import native  # noqa: E402

PAPERS = ("aleph", "luwu", "p4inc", "rotor", "trio")  # folders of reproductions/
TORCH = "torch>=2.11,<2.15"  # workloads/native/build.py: OLDEST to NEWEST
# bpf/, p4/ and wireshark/ are folders of the checkout, not Python packages: an installed copy finds them in
# share/optinc.
DATA = [
    (str(Path("share/optinc") / folder.relative_to(HERE)), [str(file.relative_to(HERE)) for file in files])
    for top in ("bpf", "p4", "wireshark")
    for folder in [HERE / top, *sorted(path for path in (HERE / top).rglob("*") if path.is_dir())]
    if (files := sorted(path for path in folder.glob("*") if path.is_file()))
]


def direct_requirements(pinned: str) -> list[str]:
    """The first list of scripts/requirements.txt: what the project imports itself. Of torch an installed copy
    takes each version that the backend is made for.
    """
    listed = pinned.partition("# the testbed,")[2].partition("\n\n")[0].splitlines()[1:]
    return [TORCH if line.startswith("torch==") else line for line in listed]


def extension(library: native.Library, *options: str) -> Extension:
    """Return what setuptools needs to compile a library, with the digest of its sources in it."""
    compiled, included = (
        [str(path.relative_to(HERE)) for path in library.files(patterns)]
        for patterns in (library.compiled, library.included)
    )
    digest = f'-D{native.MACRO}="{library.digest()}"'
    return Extension(
        library.module,
        compiled,
        depends=included,
        extra_compile_args=[*options, digest, "-Wall", "-Wextra"],
        libraries=["m"],
    )


class Build(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Compiles what is of other sources than those that lie here, whatever the times of files say."""

    def build_extension(self, ext: Extension) -> None:
        file = Path(self.get_ext_fullpath(ext.name))
        (library,) = (each for each in native.LIBRARIES if each.module == ext.name)
        if file.exists() and not library.is_current(file):
            file.unlink()
        super().build_extension(ext)


setup(
    name="optinc",
    version="0.1.0",
    description="An emulated testbed for training with in-network aggregation over an optical circuit switch",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    install_requires=direct_requirements((HERE / "scripts" / "requirements.txt").read_text(encoding="utf-8")),
    packages=find_packages(include=["testbed*", "controller*", "workloads*", "reproductions*"]),
    package_data={
        "": ["*.yaml", "*.json", "py.typed"],
        "workloads.native": ["*.cpp", "*.hpp", "wire.h"],
        "testbed.report": ["*.html"],
        "testbed.webpage": ["assets/*.css"],
        "reproductions.aleph.micro": ["*.c", "*.h"],
    },
    data_files=DATA,
    # called through ctypes: no Python headers, only a C compiler
    ext_modules=[
        extension(
            native.ENDPOINT,
            "-O3",
            f"-march={os.environ.get('OPTINC_MARCH', 'native')}",
            "-fno-math-errno",
            "-fno-strict-aliasing",
        ),
        *(extension(each, "-O2", "-fno-strict-aliasing") for each in native.LIBRARIES[1:]),
    ],
    cmdclass={"build_ext": Build},
    entry_points={
        "console_scripts": ["testbed = testbed.__main__:main"],
        "torch.backends": ["inc = workloads.autoload:register"],
        "testbed.papers": [f"{paper} = reproductions.{paper}:FIGURES" for paper in PAPERS],
    },
)
