"""A whole machine with a Debian kernel, emulated by QEMU: this host's own files below a writable layer in
memory, the kernel's modules, and a command that runs as root.

Owns fetching a kernel's package, the first file system and QEMU's arguments. Nothing is installed on this
host, and the machine cannot write to this host's files.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.host_checks.headers import cache_folder

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SUITES = {"bookworm": "Debian 12's own", "bookworm-backports": "Debian 13's, as Debian 12's archive has it"}
MARCH = "x86-64-v3"  # QEMU's emulated instruction set; this host's processor may have more
MEMORY_MB = 6144
END = "kernel machine: exit code "
# in the order of their dependencies
MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay")
_PACKAGE_S = 300


class MachineError(Exception):
    """The machine cannot be made; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: its image, and the folder of its modules."""

    release: str
    image: Path
    modules: Path


def fetched(suite: str) -> Kernel:
    """Fetch the kernel of one of SUITES from this host's Debian mirror, unless it is in the cache."""
    folder = cache_folder() / "kernels" / suite
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        apt = _apt(folder, suite)
        _run([*apt, "update"], folder)
        asked = _run(["apt-cache", *apt[1:], "depends", "linux-image-amd64"], folder)
        image = re.search(r"Depends: (linux-image-\S+)", asked)
        if image is None:
            raise MachineError(f"{suite} names no kernel")
        for name in (image[1], "busybox-static"):
            _run([*apt, "download", name], folder)
        for package in folder.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(folder / "root")], folder)
            package.unlink()
        (release,) = (each.name for each in (folder / "root/lib/modules").iterdir())
        (folder / "layer/usr/lib").mkdir(parents=True)
        (folder / "root/lib/modules").rename(folder / "layer/usr/lib/modules")
        _run(["depmod", "-b", str(folder / "layer/usr"), release], folder)
        (folder / "complete").touch()
    modules = folder / "layer/usr/lib/modules"
    (release,) = (each.name for each in modules.iterdir())
    return Kernel(release, folder / f"root/boot/vmlinuz-{release}", modules)


def _apt(folder: Path, suite: str) -> list[str]:
    """Return `apt-get` with package lists of its own, for `suite`, from the mirror that this host uses."""
    said = _run(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)"], folder)
    sites = [line.split() for line in said.splitlines()]
    mirrors = [site for site, name, component in sites if (name, component) == ("bookworm", "main")]
    if not mirrors:
        raise MachineError("apt has no lists of Debian 12 (bookworm main): run apt-get update")
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "sources.list").write_text(
        "".join(f"deb {mirrors[0]} {each} main\n" for each in dict.fromkeys(("bookworm", suite)))
    )
    settings = {
        "Dir::Etc::SourceList": str(folder / "sources.list"),
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": str(folder / "lists"),
        "APT::Default-Release": suite,
        "APT::Sandbox::User": "root",
    }
    return [
        "apt-get",
        "-qq",
        *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")),
    ]


def _run(argv: Sequence[str], folder: Path) -> str:
    """Run a program and return its output. MachineError with its last line where it fails."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=_PACKAGE_S)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise MachineError(f"{argv[0]} {argv[-1]}: exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def _needed(modules: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of modules and of all that they depend on, each after its dependencies."""
    files = {file.name.partition(".ko")[0].replace("-", "_"): file for file in modules.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name not in files:  # not a file: built into the kernel's image
            return
        packed = files[name].read_bytes()
        content = lzma.decompress(packed) if files[name].suffix == ".xz" else packed
        needs = re.search(rb"\0?depends=([^\0]*)\0", content)
        for each in (needs[1].decode() if needs else "").split(","):
            add(each.replace("-", "_"))
        ordered[name] = content

    for name in names:
        add(name)
    return ordered


def _first_files(kernel: Kernel, folder: Path, target: Path) -> None:
    """Write the first file system: the modules needed to reach this host's files, and its init."""
    root = folder / "first"
    (root / "bin").mkdir(parents=True)
    (root / "modules").mkdir()
    for name in ("proc", "sys", "dev", "host", "layer", "memory", "new"):
        (root / name).mkdir()
    busybox = kernel.image.parents[1] / "bin/busybox"
    shutil.copy(busybox, root / "bin/busybox")
    for at, (name, content) in enumerate(_needed(kernel.modules / kernel.release, MODULES).items()):
        (root / "modules" / f"{at:02d}-{name}.ko").write_bytes(content)
    shutil.copy(HERE / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*"))).encode()
    argv = [str(busybox), "cpio", "-o", "-H", "newc"]
    packed = subprocess.run(argv, input=names, cwd=root, capture_output=True, check=True, timeout=_PACKAGE_S)
    target.write_bytes(gzip.compress(packed.stdout, 1))


def _layer(kernel: Kernel, folder: Path, argv: Sequence[str]) -> Path:
    """Make the layer over this host's files: modules, the command, and parts compiled for QEMU's
    processor.
    """
    layer = folder / "layer"
    shutil.copytree(kernel.modules, layer / "usr/lib/modules", copy_function=os.link)
    script = (HERE / "inside.sh").read_text()
    end = f'cd {shlex.quote(str(CHECKOUT))}\n{shlex.join(argv)}\necho "{END}$?"\n'
    (layer / "kernel-machine").write_text(script.replace("# the command\n", end))
    build = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
    build += ["--build-lib", f"{layer}{CHECKOUT}", "--build-temp", str(folder / "build")]
    _run(["env", f"OPTINC_MARCH={MARCH}", *build], CHECKOUT)
    return layer


def run(kernel: Kernel, argv: Sequence[str], limit_s: float) -> int:
    """Run a command on a machine with this kernel, and print its console's output. Return the command's exit
    code, or 124 where it did not end in time. The machine has as many processors as this host.
    """
    if shutil.which("qemu-system-x86_64") is None:
        raise MachineError("qemu-system-x86_64 is not installed: apt-get install qemu-system-x86")
    with tempfile.TemporaryDirectory(dir=kernel.modules.parents[3], prefix="machine-") as name:
        folder = Path(name)
        _first_files(kernel, folder, folder / "initrd")
        shares = {"host": Path("/"), "layer": _layer(kernel, folder, argv)}
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", str(MEMORY_MB)]
        words += ["-smp", str(os.cpu_count() or 1), "-nographic", "-no-reboot", "-nic", "none"]
        words += ["-kernel", str(kernel.image), "-initrd", str(folder / "initrd")]
        words += ["-append", "console=ttyS0 panic=-1 edd=off mitigations=off quiet"]
        for tag, path in shares.items():
            words += ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap"]
            words += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return _console(words, limit_s)


def _console(words: Sequence[str], limit_s: float) -> int:
    argv = ["timeout", "--signal=KILL", f"{limit_s:g}", *words]
    code = 124
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
        assert machine.stdout is not None
        is_ours = False
        for raw in machine.stdout:
            line = raw.decode(errors="replace").rstrip()
            is_ours = is_ours or "kernel machine:" in line
            if is_ours:
                print(line[line.find("kernel machine:") :] if "kernel machine:" in line else line, flush=True)
            if END in line:
                code = int(line.rpartition(END)[2])
    return code
