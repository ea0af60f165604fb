"""Every path through a compiled P4 program's ingress pipeline, and the registers that a packet reads and
writes on it.

A field's value is the set of its possible numbers, as far as the program itself determines them, or unknown.
Paths that no packet can take are omitted, for example where a verdict that was set is tested again. Values
from a packet, a table entry or a register are unknown.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Access = tuple[str, str]  # "read" or "write", the register array
Values = frozenset[int] | None  # None: unknown
Known = dict[str, frozenset[int]]
_Accesses = frozenset[tuple[Access, ...]]

_MOST = 8  # most values of a field; with more, the field counts as unknown
_EITHER = frozenset({0, 1})
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_COMPARED: dict[str, Callable[[int, int], int]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def ways(program: Mapping[str, Any], until: str = "\0") -> frozenset[tuple[Access, ...]]:
    """Return the paths through a program, up to a table whose name begins with `until`: the accesses to
    register arrays in order, each path once.
    """
    return _Ways(program, until).all()


def apart(way: tuple[Access, ...]) -> frozenset[str]:
    """Return the arrays that a path accesses otherwise than by a read, a write, or a read immediately
    followed by a write. A stage of a hardware switch can do no more with an array, and a packet passes a
    stage once.
    """
    at: dict[str, list[int]] = {}
    for position, (_, array) in enumerate(way):
        at.setdefault(array, []).append(position)
    return frozenset(
        array
        for array, (first, *others) in at.items()
        if others and (others != [first + 1] or (way[first][0], way[first + 1][0]) != ("read", "write"))
    )


def registers(action: Mapping[str, Any]) -> frozenset[str]:
    """Return the register arrays that an action reads or writes."""
    return frozenset(
        parameter["value"]
        for step in action["primitives"]
        for parameter in step["parameters"]
        if parameter["type"] == "register_array"
    )


class _Ways:
    def __init__(self, program: Mapping[str, Any], until: str) -> None:
        self._until = until
        pipeline = next(each for each in program["pipelines"] if each["name"] == "ingress")
        self._first = pipeline["init_table"]
        self._tables = {table["name"]: table for table in pipeline["tables"]}
        self._conditions = {condition["name"]: condition for condition in pipeline["conditionals"]}
        self._actions = {action["id"]: action for action in program["actions"]}
        self._asked = _asked(pipeline["conditionals"], program["actions"])
        self._start = self._of_use(_parsed(program))
        self._found: dict[tuple[str | None, frozenset[tuple[str, frozenset[int]]]], _Accesses] = {}

    def all(self) -> _Accesses:
        return self._from(self._first, self._start)

    def _from(self, node: str | None, known: Known) -> _Accesses:
        """Return the paths from a node on. They are computed once for all paths to it with the same
        known values.
        """
        if node is None or node.startswith(self._until):
            return frozenset({()})
        at = (node, frozenset(known.items()))
        if at not in self._found:
            self._found[at] = frozenset(
                accesses + later
                for then, after, accesses in self._step(node, known)
                for later in self._from(then, after)
            )
        return self._found[at]

    def _step(self, node: str, known: Known) -> Iterator[tuple[str | None, Known, tuple[Access, ...]]]:
        """Yield each possible next node, with the fields' values then and the arrays read and written."""
        if node in self._conditions:
            condition = self._conditions[node]
            possible = _value(condition["expression"], known)
            for outcome in _EITHER if possible is None else possible:
                then = condition["true_next" if outcome else "false_next"]
                yield then, _with(known, condition["expression"], bool(outcome)), ()
            return
        table = self._tables[node]
        default = self._actions[table["default_entry"]["action_id"]]
        chosen = [(default, "__MISS__")]
        if table["key"]:
            chosen += [(self._actions[number], "__HIT__") for number in table["action_ids"]]
        following = table["next_tables"]
        for action, how in chosen:
            then = following[how] if how in following else following[action["name"]]
            for after, accesses in _done(action, known):
                yield then, self._of_use(after), accesses

    def _of_use(self, known: Known) -> Known:
        return {name: values for name, values in known.items() if name in self._asked}


def _asked(conditionals: Sequence[Mapping[str, Any]], actions: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the fields that can affect where a packet goes; only these distinguish paths."""
    steps = [step for action in actions for step in action["primitives"]]
    asked = set().union(*(_fields(each["expression"]) for each in conditionals))
    asked |= set().union(*(_fields(step["parameters"][0]) for step in steps if step["op"] == "_jump_if_zero"))
    assigned = [step["parameters"] for step in steps if step["op"] == "assign"]
    while more := set().union(*(_fields(by) for to, by in assigned if _fields(to) & asked)) - asked:
        asked |= more
    return asked


def _fields(said: Any) -> set[str]:
    """Return the fields in an expression."""
    if isinstance(said, Mapping):
        if said.get("type") == "field":
            return {_name(said)}
        if said.get("type") == "header":
            return {f"{said['value']}.$valid$"}
        return set().union(*map(_fields, said.values())) if said else set()
    return set()


def _parsed(program: Mapping[str, Any]) -> Known:
    """Return the fields' values after the parser. All are zero (v1model) except those that it sets: always in
    its first state, possibly in others.
    """
    scalars = next(kind for kind in program["header_types"] if kind["name"] == "scalars_0")
    known: Known = {f"scalars.{name}": frozenset({0}) for name, *_ in scalars["fields"]}
    parser = program["parsers"][0]
    for state in parser["parse_states"]:
        always = state["name"] == parser["init_state"]
        for step in state["parser_ops"]:
            if step["op"] == "set":
                name, value = _name(step["parameters"][0]), _value(step["parameters"][1], {})
                before = known.get(name)
                _set(known, name, value if always else None if None in (value, before) else value | before)
    return known


def _done(action: Mapping[str, Any], known: Known) -> Iterator[tuple[Known, tuple[Access, ...]]]:
    """Yield, for each path through an action's jumps, the fields' values after it and the arrays that it
    reads and writes.
    """
    steps = action["primitives"]
    left: list[tuple[int, Known, tuple[Access, ...]]] = [(0, known, ())]
    while left:
        at, before, accesses = left.pop()
        if at == len(steps):
            yield before, accesses
            continue
        operation, parameters = steps[at]["op"], steps[at]["parameters"]
        if operation == "_jump":
            left.append((int(parameters[0]["value"], 16), before, accesses))
        elif operation == "_jump_if_zero":
            condition, target = parameters[0], int(parameters[1]["value"], 16)
            possible = _value(condition, before)
            for outcome in _EITHER if possible is None else possible:
                then = at + 1 if outcome else target
                left.append((then, _with(before, condition, bool(outcome)), accesses))
        else:
            after, access = _changed(operation, parameters, before)
            left.append((at + 1, after, accesses + access))


def _changed(operation: str, parameters: Sequence[Any], known: Known) -> tuple[Known, tuple[Access, ...]]:
    """Return the fields' values after a primitive, and the array that it reads or writes, if any."""
    if operation == "register_write":
        return known, (("write", parameters[0]["value"]),)
    after = dict(known)
    if operation in ("add_header", "remove_header"):
        after[f"{parameters[0]['value']}.$valid$"] = frozenset({int(operation == "add_header")})
    if parameters[0]["type"] == "field":
        _set(after, _name(parameters[0]), _value(parameters[1], known) if operation == "assign" else None)
    return after, (("read", parameters[1]["value"]),) if operation == "register_read" else ()


def _value(said: Any, known: Known) -> Values:
    """Return the possible values of an expression; truth is 0 or 1, and None is unknown."""
    if said is None:
        return None
    kind, value = said["type"], said["value"]
    if kind == "hexstr":
        return frozenset({int(value, 16)})
    if kind == "bool":
        return frozenset({int(value)})
    if kind == "field":
        return known.get(_name(said))
    if kind != "expression":
        return None
    if "op" not in value:
        return _value(value, known)
    operation, left, right = value["op"], _value(value["left"], known), _value(value["right"], known)
    if operation in ("d2b", "b2d"):
        return right if right is not None else _EITHER
    if operation == "not":
        return _each(lambda _, truth: 1 - truth, frozenset({0}), right if right is not None else _EITHER)
    if operation in ("and", "or"):
        stops = int(operation == "or")
        if frozenset({stops}) in (left, right):
            return frozenset({stops})
        return _each(_ARITHMETIC["|" if stops else "&"], left or _EITHER, right or _EITHER)
    if operation == "?":
        chosen = _value(value["cond"], known) or _EITHER
        sides = [side for truth, side in ((1, left), (0, right)) if truth in chosen]
        return (
            None
            if None in sides
            else _small(frozenset().union(*(side for side in sides if side is not None)))
        )
    if operation in _COMPARED:
        return _EITHER if left is None or right is None else _each(_COMPARED[operation], left, right)
    if left is None or right is None or operation not in _ARITHMETIC:
        return None
    return _each(_ARITHMETIC[operation], left, right)


def _each(made: Callable[[int, int], int], left: frozenset[int], right: frozenset[int]) -> Values:
    return _small(frozenset(int(made(*pair)) for pair in itertools.product(left, right)))


def _small(values: frozenset[int]) -> Values:
    return values if len(values) <= _MOST else None


def _with(known: Known, said: Mapping[str, Any], truth: bool) -> Known:
    """Return the fields' values once a condition is known to be true or false."""
    value = said["value"]
    if said["type"] == "expression" and "op" not in value:
        return _with(known, value, truth)
    if said["type"] != "expression":
        return known
    operation = value["op"]
    if operation == "not":
        return _with(known, value["right"], not truth)
    if operation == "b2d":
        return _with(known, value["right"], truth)
    if operation == "d2b" and value["right"]["type"] == "field":
        return _told(known, _name(value["right"]), frozenset({int(truth)}))
    if operation == ("and" if truth else "or"):
        return _with(_with(known, value["left"], truth), value["right"], truth)
    if operation in ("==", "!=") and value["left"]["type"] == "field":
        asked = _value(value["right"], known)
        if asked is not None and len(asked) == 1:
            before = known.get(_name(value["left"]))
            if truth == (operation == "=="):
                return _told(known, _name(value["left"]), asked)
            if before is not None:
                return _told(known, _name(value["left"]), before - asked)
    return known


def _told(known: Known, name: str, values: frozenset[int]) -> Known:
    return {**known, name: values}


def _set(known: Known, name: str, values: Values) -> None:
    if values is None:
        known.pop(name, None)
    else:
        known[name] = values


def _name(field: Mapping[str, Any]) -> str:
    return ".".join(field["value"])
