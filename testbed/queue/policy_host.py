"""The process of a policy: `python -m testbed.queue.policy_host POLICY --seed N`, as the user who submitted
the jobs.

It reads states from the socket that is its standard input, one JSON object a line, and writes decisions to
it. The policy's own output goes to its log. POLICY is a name of the catalogue, FILE.py:CLASS, or
MODULE:CLASS. Modules are imported from FILE's folder and the working folder.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import socket
import sys
import time
import traceback
from dataclasses import replace

from testbed.aggregation.system import Policies, System
from testbed.encoding import to_json
from testbed.errors import RequestError, TestbedError
from testbed.plugins.policies import choice, make, policies, usual
from testbed.plugins.user_class import in_a_line, is_users, load
from testbed.queue.policy_messages import PolicyMessage
from testbed.scheduling.messages import state_from_json
from testbed.scheduling.model import Decision, Policy


def policy_of(name: str, seed: int) -> Policy:
    """Make a policy by its name, by FILE.py:CLASS, or by FILE.py:CLASS/NAME, the policy NAME of a system.
    Raises RequestError with the reason.
    """
    if not is_users(name):
        return make(name, seed)
    where, _, of_system = name.rpartition("/") if "/" in name.rpartition(":")[2] else (name, "", "")
    try:
        factory = load(where)
        if of_system:
            return _of_system(factory(), of_system, seed)
        wants_seed = "seed" in inspect.signature(factory).parameters
        policy: Policy = factory(seed=seed) if wants_seed else factory()
        if not callable(getattr(policy, "decide", None)):
            raise TypeError(f"{name.rpartition(':')[2]} has no method decide")
    except Exception as error:  # a user's code may raise anything
        traceback.print_exc()
        raise RequestError(f"policy {name}: {in_a_line(error)}") from error
    return policy


def _of_system(system: System, name: str, seed: int) -> Policy:
    """Make a policy of a user's system. Raises ValueError for one that the queue cannot serve, because it
    lays jobs out by the systems of the default policy.
    """
    brought: Policies | None = getattr(system, "policies", None)
    if brought is None or name not in brought.factories:
        known = ", ".join(brought.factories) if brought else "none"
        raise ValueError(f"its system has no policy {name!r}; it has {known}")
    pair = choice(usual())
    wanted = (pair.with_inc.name, pair.without_inc.name)
    if (brought.with_inc, brought.without_inc) != wanted:
        raise ValueError(
            f"it chooses between {brought.with_inc} and {brought.without_inc}; a policy of a file can choose "
            f"between {' and '.join(wanted)}"
        )
    return brought.factories[name](seed)


def main(argv: list[str]) -> int:
    """Answer states with decisions until the other end closes."""
    parser = argparse.ArgumentParser(prog="python -m testbed.queue.policy_host", description=__doc__)
    parser.add_argument("policy", help=f"FILE.py:CLASS, MODULE:CLASS, or one of {', '.join(policies())}")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    with socket.socket(fileno=os.dup(0)) as peer, peer.makefile("rwb") as lines:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)

        def say(message: PolicyMessage) -> None:
            lines.write(message.line())
            lines.flush()

        try:
            policy = policy_of(arguments.policy, arguments.seed)
        except TestbedError as error:
            say(PolicyMessage(refused=str(error)))
            return error.exit_code
        name = " ".join(str(getattr(policy, "name", arguments.policy)).split())
        say(PolicyMessage(ready=name))
        for line in lines:
            asked = json.loads(line)
            answer = PolicyMessage(number=asked["number"])
            began = time.perf_counter()
            try:
                decision = policy.decide(state_from_json(asked["state"]))
                answer = replace(answer, took_s=time.perf_counter() - began)
                if not isinstance(decision, Decision):
                    raise TypeError(f"decide returned {type(decision).__name__}, which is no Decision")
                answer = replace(answer, decision=to_json(decision))
            except Exception as error:  # a policy may raise anything; it is asked again in the next time slot
                traceback.print_exc()
                answer = replace(answer, raised=in_a_line(error))
            say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
