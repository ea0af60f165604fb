#!/usr/bin/python3
"""Build the testbed's container image, and run commands in it, with podman or docker.

`scripts/container.py build` (`make container`), then `scripts/container.py run make demo`. `build` makes the
image from `Containerfile`: on Debian 12's public image, on another one (--base), or on one that debootstrap
makes here where no image can be fetched (--debootstrap). `run` gives a container what docs/containers.md says
that it needs. Imports nothing outside the standard library. Exit codes: 0 done, 2 the request was wrong, 3
this host cannot; else the exit code of the engine, or of the command in the container.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
IMAGE = "localhost/optinc"
BASE = "localhost/optinc-base"
ENGINES = ("podman", "docker")
SUITE = "bookworm"
# what set-up in the image needs before it can start, in addition to a minimal system
INCLUDED = ("ca-certificates", "git", "make", "python3", "sudo")
PIP_SETTINGS = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_CERT",
)  # the Containerfile's arguments
HANDED_ON = (
    "CI",
    "TESTBED_REQUIRE",
    "TESTBED_GATE_LANES",
    "TESTBED_GATE_LIMIT_S",
)  # the caller's environment variables that a command in the container gets
CAP_SYS_RESOURCE = 24
PODMANS_PROCESSES = 32768  # podman lowers its own limit to this before it starts anything (seen with 4.3)
HYBRID_CGROUPS = Path("/sys/fs/cgroup/unified")


class ContainerError(Exception):
    """The request cannot be carried out; `exit_code` as in the module's docstring."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def engine_of(name: str | None) -> str:
    """Return the path of the container engine: that of `name`, else the first of ENGINES that is installed.
    Raises ContainerError where there is none.
    """
    for engine in [name] if name else ENGINES:
        if path := shutil.which(engine):
            return path
    raise ContainerError(
        f"no {name or ' and no '.join(ENGINES)} here; on Debian: sudo apt-get install podman runc", 3
    )


def host_options(engine: str) -> tuple[list[str], list[str]]:
    """Return the options that this host needs: of the engine itself, and of its `run` and `build`."""
    own: list[str] = []
    options: list[str] = []
    if Path(engine).name == "podman" and HYBRID_CGROUPS.is_dir():
        # crun refuses control groups of versions 1 and 2 side by side: a build fails at its first step
        if shutil.which("runc") is None:
            raise ContainerError(
                "podman needs runc here, where control groups of versions 1 and 2 are side by side; on "
                "Debian: sudo apt-get install runc",
                3,
            )
        own += ["--runtime", "runc"]
    if not _may_raise_limits():
        # the engine's defaults exceed this host's limits
        for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            _, hard = resource.getrlimit(kind)
            most = min(hard, PODMANS_PROCESSES) if hard != resource.RLIM_INFINITY else PODMANS_PROCESSES
            options.append(f"--ulimit={name}={most}:{most}")
    return own, options


def _may_raise_limits(status: Path = Path("/proc/self/status")) -> bool:
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def pip_arguments(environ: Mapping[str, str]) -> list[str]:
    """Return a build's arguments that pass pip's settings on."""
    return [f"--build-arg={name}={environ[name]}" for name in PIP_SETTINGS if environ.get(name)]


def build_command(
    engine: str, image: str, base: str | None, extra: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return the engine's command that builds `image`."""
    own, options = host_options(engine)
    arguments = [*pip_arguments(environ), *([f"--build-arg=BASE={base}"] if base else [])]
    # with the host's network, because set-up fetches packages
    return [
        *(engine, *own, "build", "--network=host", *options, *arguments, *extra),
        *(f"--tag={image}", f"--file={CHECKOUT / 'Containerfile'}", str(CHECKOUT)),
    ]


def run_command(
    engine: str,
    image: str,
    out: Path | None,
    extra: Sequence[str],
    command: Sequence[str],
    environ: Mapping[str, str],
) -> list[str]:
    """Return the engine's command that runs `command` in a container of `image`."""
    own, options = host_options(engine)
    options += [f"--env={name}={environ[name]}" for name in HANDED_ON if name in environ]
    if out is not None:
        options.append(f"--volume={out}:/optinc/out")
    if sys.stdin.isatty() and sys.stdout.isatty():
        options += ["--interactive", "--tty"]
    # no network: a testbed makes its own, and needs nothing from outside
    return [engine, *own, "run", "--rm", "--privileged", "--network=none", *options, *extra, image, *command]


def requirements_file(image: str, name: str) -> str:
    """Return a Containerfile that installs the requirements file `name` into the environment of `image`."""
    steps = [
        f"FROM {image}",
        *(f"ARG {setting}" for setting in PIP_SETTINGS),
        f"COPY {name} /tmp/requirements.txt",
    ]
    steps += ["RUN /optinc/.venv/bin/python -m pip install --no-cache-dir -r /tmp/requirements.txt"]
    return "\n".join(steps) + "\n"


def add_requirements(
    engine: str, image: str, requirements: Path, extra: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Rebuild `image` with a requirements file installed in it."""
    if not requirements.is_file():
        raise ContainerError(f"--requirements {requirements}: no such file", 2)
    own, options = host_options(engine)
    with tempfile.TemporaryDirectory(prefix="optinc-requirements-") as folder:
        shutil.copy(requirements, folder)
        Path(folder, "Containerfile").write_text(requirements_file(image, requirements.name))
        named = [f"--tag={image}", f"--file={folder}/Containerfile", folder]
        _call([engine, *own, "build", "--network=host", *options, *pip_arguments(environ), *extra, *named])


def import_base(engine: str, suite: str, mirror: str) -> str:
    """Make a base image of Debian's release `suite` by debootstrap, unless it exists, and return its name."""
    name = f"{BASE}:{suite}"
    if _is_there(engine, name):
        return name
    if shutil.which("debootstrap") is None:
        raise ContainerError("no debootstrap here; on Debian: sudo apt-get install debootstrap", 3)
    if os.geteuid() != 0:
        raise ContainerError("debootstrap needs root; run it with sudo", 3)
    with tempfile.TemporaryDirectory(prefix="optinc-base-") as folder:
        include = f"--include={','.join(INCLUDED)}"
        _call(["debootstrap", "--variant=minbase", include, suite, folder, *([mirror] if mirror else [])])
        with subprocess.Popen(
            ["tar", "--create", f"--directory={folder}", "."], stdout=subprocess.PIPE
        ) as archive:
            _call([engine, "import", "-", name], stdin=archive.stdout)
        if archive.returncode != 0:
            raise ContainerError(f"tar exited with {archive.returncode}; {name} is not whole: remove it", 1)
    return name


def _is_there(engine: str, image: str) -> bool:
    return (
        subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode == 0
    )


def _call(argv: Sequence[str], stdin: object = None) -> None:
    code = subprocess.run(argv, stdin=stdin, check=False).returncode  # type: ignore[call-overload]
    if code != 0:
        raise ContainerError(f"{Path(argv[0]).name} exited with {code}", 1)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/container.py", description="The testbed in a container.")
    parser.add_argument("--engine", choices=ENGINES, help="the first of them that is installed")
    parser.add_argument("--image", default=IMAGE, help=f"its name ({IMAGE})")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="OPT",
        help="one more option for the engine's build or run",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="make the image")
    base = build.add_mutually_exclusive_group()
    base.add_argument("--base", metavar="IMAGE", help="on this image of Debian 12 (debian:12)")
    base.add_argument(
        "--debootstrap", action="store_true", help="on an image that debootstrap makes, once, as root"
    )
    build.add_argument("--suite", default=SUITE, help=f"Debian's release, for --debootstrap ({SUITE})")
    build.add_argument(
        "--mirror", default="", metavar="URL", help="Debian's mirror, for --debootstrap (debootstrap's own)"
    )
    build.add_argument("--requirements", type=Path, metavar="FILE", help="install these for your jobs, too")
    run = actions.add_parser("run", help="run a command in a new container")
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="what the command leaves in the checkout's out/ goes there"
    )
    run.add_argument(
        "--print", action="store_true", dest="printed", help="print the engine's command instead"
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...", help="such as make demo")
    return parser.parse_args(argv)


def act(options: argparse.Namespace) -> int:
    engine = engine_of(options.engine)
    if options.action == "build":
        base = import_base(engine, options.suite, options.mirror) if options.debootstrap else options.base
        _call(build_command(engine, options.image, base, options.option, os.environ))
        if options.requirements:
            add_requirements(engine, options.image, options.requirements, options.option, os.environ)
        return 0
    if not options.command:
        raise ContainerError("run what? such as: scripts/container.py run make demo", 2)
    out = options.out.absolute() if options.out else None
    argv = run_command(engine, options.image, out, options.option, options.command, os.environ)
    if options.printed:
        print(" ".join(argv))
        return 0
    if not _is_there(engine, options.image):
        raise ContainerError(f"there is no image {options.image}; run: scripts/container.py build", 3)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    os.execv(engine, argv)


def main() -> int:
    try:
        return act(parsed(sys.argv[1:]))
    except ContainerError as error:
        print(f"container: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
