"""Kernel headers for BCC: which are chosen, and what the overlay of Debian's two packages holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host_checks.headers import kernel_headers

FILES = {
    "common": [
        "Makefile",
        "include/linux/kconfig.h",
        "include/uapi/linux/bpf.h",
        "arch/riscv/include/asm/io.h",
    ],
    "riscv64": ["include/generated/autoconf.h", "arch/riscv/include/generated/asm/rwonce.h"],
}


def install(root: Path, version: str) -> Path:
    """Puts Debian's two packages of a version, the few files that matter, below `root`."""
    for part, names in FILES.items():
        for name in names:
            path = root / f"usr/src/linux-headers-{version}-{part}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{version} {part}")
    arch = root / f"usr/src/linux-headers-{version}-riscv64"
    (arch / "Makefile").write_text(f"include /usr/src/linux-headers-{version}-common/Makefile\n")
    return arch


def headers(root: Path, release: str = "6.18.0") -> Path:
    return kernel_headers(root, release, root / "cache")


def test_the_overlay_has_both_packages_files(tmp_path: Path) -> None:
    arch = install(tmp_path, "6.1.0-7")
    made = headers(tmp_path)
    for part, names in FILES.items():
        for name in set(names) - {"Makefile"}:
            assert (made / name).read_text() == f"6.1.0-7 {part}"
    assert (made / "Makefile").read_text() == (arch / "Makefile").read_text()


def test_the_newest_by_number_is_chosen(tmp_path: Path) -> None:
    for version in ("6.1.0-9", "6.1.0-10"):
        install(tmp_path, version)
    assert headers(tmp_path).name == "linux-headers-6.1.0-10-riscv64"


def test_the_running_kernels_own_come_first(tmp_path: Path) -> None:
    install(tmp_path, "6.1.0-10")
    build = tmp_path / "lib/modules/6.18.0/build"
    for name in ("include/linux/kconfig.h", "include/generated/autoconf.h"):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).touch()
    assert headers(tmp_path) == build


def test_an_overlay_whose_packages_went_is_made_anew(tmp_path: Path) -> None:
    arch = install(tmp_path, "6.1.0-7")
    made = headers(tmp_path)
    (made / "include/generated").unlink()
    assert (
        headers(tmp_path) / "include/generated/autoconf.h"
    ).read_text() == f"6.1.0-7 {arch.name.split('-')[-1]}"


def test_none_at_all_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="sudo make setup"):
        headers(tmp_path)


def test_half_of_the_two_packages_names_the_remedy(tmp_path: Path) -> None:
    install(tmp_path, "6.1.0-7")
    (tmp_path / "usr/src/linux-headers-6.1.0-7-common/include/linux/kconfig.h").unlink()
    with pytest.raises(HostError, match="is not complete"):
        headers(tmp_path)


def test_a_cache_that_cannot_be_written_is_a_host_error(tmp_path: Path) -> None:
    install(tmp_path, "6.1.0-7")
    (tmp_path / "cache").write_text("a file, where a folder would have to be")
    with pytest.raises(HostError, match="cannot make the overlay"):
        headers(tmp_path)
