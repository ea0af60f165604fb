#!/usr/bin/python3
"""Find out what a container of the testbed needs, by withdrawing step by step what `--privileged` grants.

In each container a testbed comes up, trains as `nobody`, ends a job at its time limit, changes a circuit,
goes down and leaves nothing; the doctor's verdict must agree. First capabilities are dropped in groups, which
are halved as long as something fails; the remaining ones are withdrawn one by one, and then everything else
that was granted. Prints the table of docs/containers.md. Needs the image (scripts/container.py build) and
root; takes some fifteen minutes. Imports the standard library and scripts/container.py. Exit codes: 0 done, 1
the doctor was wrong in some container, or nothing works.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from scripts import container

# <linux/capability.h>, by number
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
    "PERFMON BPF CHECKPOINT_RESTORE"
)
CAPABILITIES = tuple(_NAMES.split())
# granted by podman and docker to every container; tried last, because users need not add them
_DEFAULT_NAMES = (
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT"
)
DEFAULTS = tuple(_DEFAULT_NAMES.split())
# what --privileged grants in addition to capabilities
REST = (
    "--device=/dev/net/tun",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--security-opt=unmask=ALL",
)
# Whether it works is tried, not asked of the doctor; but the doctor's verdict must agree.
INSIDE = """
testbed doctor >/tmp/doctor 2>&1 && agrees=0 || agrees=1
job() {
  testbed up --config default --detach >/tmp/out 2>&1 || return 1
  export SUDO_UID=65534 SUDO_GID=65534
  testbed run --place u1:2,u2:1 workloads/jobs/digits.py --epochs 1 >/tmp/out 2>&1 || return 1
  echo 'import time; time.sleep(60)' >/tmp/sleeps.py
  testbed run --place u1:1 --timeout 1 /tmp/sleeps.py >/tmp/out 2>&1
  grep -q 'not done after' /tmp/out || return 1
  unset SUDO_UID SUDO_GID
  testbed circuits request u1-u2 >/tmp/out 2>&1 && testbed down >/tmp/out 2>&1 || return 1
  test ! -e /run/optinc/default || { echo "testbed down: left /run/optinc/default" >/tmp/out; return 1; }
}
job && works=0 || works=1
test $works = 0 || { tail -n 1 /tmp/out; grep -A 1 -m 1 LACKING /tmp/doctor | tail -n 1; }
test $works = $agrees && exit $works
echo "but the doctor says: $(grep -m 1 LACKING /tmp/doctor || tail -n 1 /tmp/doctor)"
exit $((works + 10))
"""
LIMIT_S = 180
TIMED_OUT = 124
WORKS = (0, 10)  # exit codes of INSIDE
DISAGREES = (10, 11)
# the time limit is inside the container, so that nothing keeps running
INSIDE_ARGV = ("timeout", "--kill-after=10", str(LIMIT_S), "sh", "-c", INSIDE)


def granted() -> list[str]:
    """Return the capabilities that this host has, which are all that it can grant."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            bits = int(line.split()[1], 16)
            return [name for number, name in enumerate(CAPABILITIES) if bits >> number & 1]
    raise SystemExit("/proc/self/status has no CapBnd")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a container. `said` says what failed, and what the doctor said where it disagrees."""

    works: bool
    disagrees: bool = False
    said: str = "works"


def attempt(engine: str, image: str, capabilities: Sequence[str], rest: Sequence[str]) -> Outcome:
    """Try everything in a container that gets these capabilities and options, and return the outcome."""
    own, options = container.host_options(engine)
    given = ["--cap-drop=ALL", *(f"--cap-add={name}" for name in capabilities), *rest]
    argv = [engine, *own, "run", "--rm", "--network=none", *options, *given, image, *INSIDE_ARGV]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode == TIMED_OUT:
        return Outcome(False, said=f"not done after {LIMIT_S} s")
    if ended.returncode == 0:
        return Outcome(True)
    lines = (ended.stdout + ended.stderr).strip().splitlines() or [f"exit code {ended.returncode}"]
    said = " | ".join(" ".join(line.split()) for line in lines)
    return Outcome(ended.returncode in WORKS, ended.returncode in DISAGREES, said)


def least(names: Sequence[str], fixed: Sequence[str], works: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return those of `names` that are needed when all of `fixed` is granted: drop groups that are not
    needed, and halve the others.
    """
    kept = list(names)

    def drop(group: Sequence[str]) -> None:
        rest = [name for name in kept if name not in group]
        if works([*rest, *fixed]):
            kept[:] = rest
        elif len(group) > 1:
            drop(group[: len(group) // 2])
            drop(group[len(group) // 2 :])

    drop(list(names))
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=container.ENGINES)
    parser.add_argument("--image", default=container.IMAGE)
    parser.add_argument(
        "--of",
        metavar="NAMES",
        help="begin with these capabilities, with commas between, and not with all that there are",
    )
    options = parser.parse_args()
    engine, image = container.engine_of(options.engine), options.image

    disagreements: list[str] = []

    def tried(capabilities: Sequence[str], rest: Sequence[str]) -> Outcome:
        outcome = attempt(engine, image, capabilities, rest)
        if outcome.disagrees:
            disagreements.append(f"{','.join(capabilities)} {' '.join(rest)}: {outcome.said}")
        return outcome

    def works(capabilities: Sequence[str], rest: Sequence[str] = REST) -> bool:
        outcome = tried(capabilities, rest)
        given = f"{len(capabilities)} capabilities, {len(rest)} options"
        print(f"{given}: {outcome.said}", file=sys.stderr, flush=True)
        return outcome.works

    every = options.of.split(",") if options.of else granted()
    if not (first := tried(every, REST)).works:
        raise SystemExit(f"it does not even work with everything given: {first.said}")
    defaults = [name for name in every if name in DEFAULTS]
    beyond = least([name for name in every if name not in DEFAULTS], defaults, works)
    needed = [*beyond, *least(defaults, beyond, works)]
    rest = least(REST, (), lambda some: works(needed, some))
    print("| without | what happens | the doctor's remedy |\n| --- | --- | --- |")
    for name in needed:
        outcome = tried([other for other in needed if other != name], rest)
        print(f"| `{name}` | {outcome.said} |", flush=True)
    for option in REST:
        outcome = tried(needed, [other for other in rest if other != option])
        print(f"| `{option}` | {outcome.said}{' | ' if outcome.said == 'works' else ''} |", flush=True)
    print(f"\nNot needed: {', '.join(name for name in every if name not in needed) or 'none'}.")
    for line in disagreements:
        print(f"the doctor was wrong: {line}", file=sys.stderr)
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
