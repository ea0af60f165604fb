"""Maps and programs that BCC made of a text, kept in a folder and had again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.dataplanes.xdp.objects import MOST, CType, MapObject, Objects, keep, kept, key_of

LOAD, EXIT = bytes([0x18]), bytes([0x95, 0, 0, 0, 0, 0, 0, 0])


def load_64(upper: int, number: int) -> bytes:
    """The instruction of 16 bytes that loads a number, or where `upper` says so a map's descriptor."""
    return LOAD + bytes([upper << 4 | 1, 0, 0]) + number.to_bytes(4, "little") + bytes(8)


U32 = CType(4, {})
CODE = load_64(0, 1) + load_64(1, 1) + load_64(1, 0) + EXIT
OBJECTS = Objects(
    (
        MapObject("records", 2, U32, CType(16, {"seen": 0, "rate": 8}), 16, 5, 1024, None),
        MapObject("tables", 12, U32, U32, 4, 3, 0, "records"),
    ),
    {"first": CODE},
    b"Apache-2.0",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_what_is_kept_is_had_again_under_its_name(folder: Path) -> None:
    assert kept("a", folder) is None
    keep("a", OBJECTS, folder)
    assert kept("a", folder) == OBJECTS
    assert kept("b", folder) is None
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize("harm", ["cut", "changed", "shared", "anothers", "link"])
def test_what_another_may_have_changed_is_not_there(
    folder: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("a", OBJECTS, folder)
    file = folder / "a"
    content = file.read_bytes()
    if harm == "cut":
        file.write_bytes(content[:-1])
    elif harm == "changed":
        file.write_bytes(content.replace(b"records", b"recordz"))
    elif harm == "shared":
        folder.chmod(0o770)
    elif harm == "anothers":
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    else:
        folder.rename(folder.with_name("other"))
        folder.symlink_to(folder.with_name("other"))
    assert kept("a", folder) is None
    if harm in ("shared", "anothers", "link"):
        keep("b", OBJECTS, folder)
        assert not (folder / "b").exists()


def test_a_folder_that_cannot_be_had_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep("a", OBJECTS, tmp_path / "file" / "kept")
    assert kept("a", tmp_path / "file" / "kept") is None


def test_no_more_is_kept_than_the_newest(folder: Path) -> None:
    for number in range(MOST + 3):
        keep(str(number), OBJECTS, folder)
        os.utime(folder / str(number), (number, number))
    assert kept("3", folder) is not None  # used, and so the newest
    keep("more", OBJECTS, folder)
    left = {path.name for path in folder.iterdir()}
    assert left == {"more", "3", *(str(number) for number in range(5, MOST + 3))}


def test_code_names_the_maps_that_were_made() -> None:
    made = OBJECTS.instructions("first", {"records": 77, "tables": 300})
    assert made == load_64(0, 1) + load_64(1, 300) + load_64(1, 77) + EXIT


def test_another_text_kernel_or_option_has_another_name() -> None:
    assert len({key_of("a", "b"), key_of("ab"), key_of("a", "b", ""), key_of("a", "c")}) == 4
