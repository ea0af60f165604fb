"""The commands for container engines, without one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts import container, container_needs, setup
from testbed.host_checks import container as probed


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that asks for no options of its own."""
    monkeypatch.setattr(container, "host_options", lambda engine: ([], []))


@pytest.mark.usefixtures("plain")
def test_build_hands_on_how_pip_reaches_its_packages_and_nothing_else() -> None:
    environ = {"PIP_FIND_LINKS": "/wheels", "PIP_CERT": "", "SECRET": "x"}
    argv = container.build_command("podman", "it", "base:1", ["--volume=/wheels:/wheels"], environ)
    assert argv[:3] == ["podman", "build", "--network=host"]
    assert [word for word in argv if word.startswith("--build-arg")] == [
        "--build-arg=PIP_FIND_LINKS=/wheels",
        "--build-arg=BASE=base:1",
    ]
    assert "--volume=/wheels:/wheels" in argv
    assert not any("SECRET" in word for word in argv)
    named = [
        line.split()[1]
        for line in (container.CHECKOUT / "Containerfile").read_text().splitlines()
        if line[:4] == "ARG "
    ]
    assert set(container.PIP_SETTINGS) <= set(named)
    text = container.requirements_file("it", "needs.txt")
    assert text.startswith("FROM it\n")
    assert all(f"\nARG {name}\n" in text for name in container.PIP_SETTINGS)


@pytest.mark.usefixtures("plain")
def test_run_is_privileged_without_a_network_and_with_its_own_out(tmp_path: Path) -> None:
    argv = container.run_command(
        "podman", "it", tmp_path, [], ["make", "demo"], {"TESTBED_REQUIRE": "xdp", "HOME": "/x"}
    )
    assert argv[:5] == ["podman", "run", "--rm", "--privileged", "--network=none"]
    assert {"--env=TESTBED_REQUIRE=xdp", f"--volume={tmp_path}:/optinc/out"} <= set(argv)
    assert argv[-3:] == ["it", "make", "demo"]
    assert not any("HOME" in word for word in argv)


def test_a_host_that_may_not_raise_limits_asks_for_those_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    for bits, may in ((1 << 41) - 1, True), ((1 << 41) - 1 & ~(1 << 24), False):
        status.write_text(f"Name:\tx\nCapEff:\t{bits:016x}\n")
        assert container._may_raise_limits(status) is may
    monkeypatch.setattr(container, "_may_raise_limits", lambda: False)
    _, options = container.host_options("/usr/bin/docker")
    limits = dict(word.removeprefix("--ulimit=").split("=") for word in options)
    assert set(limits) == {"nofile", "nproc"}
    assert all(int(soft) == int(hard) for soft, hard in (limit.split(":") for limit in limits.values()))
    assert int(limits["nproc"].split(":")[0]) <= container.PODMANS_PROCESSES


@pytest.mark.parametrize("words", [["build"], ["run", "make", "demo"]], ids=" ".join)
def test_podman_without_runc_on_hybrid_control_groups_is_said_before_anything_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    has = {"podman": "/usr/bin/podman"}
    monkeypatch.setattr(container, "HYBRID_CGROUPS", tmp_path)
    monkeypatch.setattr(container.shutil, "which", has.get)
    for module, name in ((container.subprocess, "run"), (container.subprocess, "Popen"), (os, "execv")):
        monkeypatch.setattr(module, name, started)
    monkeypatch.setattr("sys.argv", ["container.py", "--engine", "podman", *words])
    assert container.main() == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("container: podman needs runc here")
    assert line.endswith("sudo apt-get install runc")
    has["runc"] = "/usr/sbin/runc"
    assert container.host_options("/usr/bin/podman")[0] == ["--runtime", "runc"]
    del has["runc"]
    assert container.host_options("/usr/bin/docker")[0] == [], "Docker has its own"


def test_no_engine_no_image_and_no_command_are_one_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["container.py", "run", "true"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert container.main() == 3
    assert capsys.readouterr().err == (
        "container: no podman and no docker here; on Debian: sudo apt-get install podman runc\n"
    )
    monkeypatch.setattr("shutil.which", lambda name: "/bin/false")
    assert container.main() == 3
    assert "there is no image localhost/optinc; run: scripts/container.py build" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["container.py", "run"])
    assert container.main() == 2


def test_the_search_keeps_what_is_needed_and_nothing_else() -> None:
    names = [f"c{number}" for number in range(29)]
    for needed in (set[str](), {"c3"}, {"c0", "c7", "c28"}, set(names)):
        asked: list[object] = []

        def works(given: object, needed: set[str] = needed, asked: list[object] = asked) -> bool:
            asked.append(given)
            assert isinstance(given, list)
            return needed | {"fixed"} <= set(given)

        assert set(container_needs.least(names, ["fixed"], works)) == needed
        assert len(asked) <= 2 * max(1, len(needed)) * 6


# A testbed that keeps what users' jobs leave where it lacks $KEEPS, and a doctor that answers with $DOCTOR.
TESTBED = """#!/bin/sh
case "$*" in
doctor) echo "capabilities  LACKING  one"; echo "  -> give it"; exit $DOCTOR ;;
*--timeout*) echo "testbed run: job 2: not done after 1 s"; exit 1 ;;
down) test -n "$KEEPS" || rmdir RUN/optinc/default ;;
esac
"""


@pytest.mark.parametrize(
    ("keeps", "doctor", "code", "said"),
    [
        ("", "0", 0, ""),
        ("", "3", 10, "but the doctor says: capabilities LACKING one"),
        ("yes", "3", 1, "testbed down: left RUN/optinc/default -> give it"),
        (
            "yes",
            "0",
            11,
            "testbed down: left RUN/optinc/default -> give it but the doctor says: capabilities",
        ),
    ],
    ids=["works", "works in spite of the doctor", "leaves something", "and the doctor does not see it"],
)
def test_what_a_container_does_and_what_the_doctor_says_are_both_heard(
    keeps: str, doctor: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "optinc" / "default").mkdir(parents=True)
    testbed = tmp_path / "testbed"
    testbed.write_text(TESTBED.replace("RUN", str(tmp_path)))
    testbed.chmod(0o755)
    inside = container_needs.INSIDE.replace("/run/", f"{tmp_path}/").replace("/tmp/o", f"{tmp_path}/o")
    inside = inside.replace("/tmp/doctor", f"{tmp_path}/doctor").replace("/tmp/sleeps", f"{tmp_path}/sleeps")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "KEEPS": keeps, "DOCTOR": doctor}
    done = subprocess.run(
        ["sh", "-c", inside], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    words = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (code, "")
    assert words.startswith(said.replace("RUN", str(tmp_path)))
    assert bool(words) == bool(said)


@pytest.mark.parametrize("wrong", [None, 10, 11], ids=["right", "lacks too much", "lacks too little"])
def test_the_search_goes_by_what_works_and_fails_where_the_doctor_is_wrong(
    wrong: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = tmp_path / "engine"
    lacks_kill, lacks_admin = (wrong if wrong == 10 else 0), (wrong if wrong == 11 else 1)
    engine.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *SYS_ADMIN*KILL*) ;; *SYS_ADMIN*) exit {lacks_kill} ;; *) exit {lacks_admin} ;; esac\n'
    )
    engine.chmod(0o755)
    monkeypatch.setattr(container, "engine_of", lambda name: str(engine))
    monkeypatch.setattr("sys.argv", ["container_needs.py", "--of", "SYS_ADMIN,KILL"])
    assert container_needs.main() == (1 if wrong else 0)
    heard = capsys.readouterr()
    assert "Not needed: KILL." in heard.out
    assert ("the doctor was wrong: " in heard.err) == bool(wrong)


def test_an_image_on_another_processor_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2\nprocessor\t: 1\nflags\t\t: fpu avx2\n")
    assert setup.processor_features(cpuinfo) == b"flags\t\t: fpu avx2"
    assert setup.processor_features(tmp_path / "none") == b""
    here = setup.fingerprint()
    monkeypatch.setattr(setup, "processor_features", lambda: b"flags\t\t: fpu")
    assert setup.fingerprint() != here


def test_the_doctor_the_search_and_the_page_mean_the_same_capabilities() -> None:
    assert all(container_needs.CAPABILITIES[bit] == name for name, (bit, _) in probed.NEEDED.items())
    asked = [name for name in probed.NEEDED if name not in container_needs.DEFAULTS]
    assert (
        f"--cap-add={','.join(asked)} --device={probed.TUN}"
        in (container.CHECKOUT / probed.WHERE).read_text()
    )
