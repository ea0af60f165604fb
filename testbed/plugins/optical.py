"""Load optical models by name, from one module each in testbed/optics/models, or a user's own class by
FILE.py:CLASS (in a process that runs as that user). Owns no model.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

from testbed.errors import RequestError, TestbedError
from testbed.keys import Duration, Parameter, Quantity, Whole, Word, YesNo
from testbed.optics.model import OpticalModel, Settings
from testbed.plugins.user_class import in_a_line, is_users, load
from testbed.topology.fields import is_number
from testbed.topology.load_optical import default_of, read_settings
from testbed.topology.model import Topology
from testbed.topology.optical import GENERAL
from testbed.topology.values import value_said

PACKAGE = "testbed.optics.models"
KINDS = (Duration, Quantity, Whole, Word, YesNo)


@functools.cache
def models() -> dict[str, type[OpticalModel]]:
    """Import all modules of testbed/optics/models and return their models by name. TestbedError names a
    module that cannot be imported, a model that fails `check_class`, or a name that two models have.
    """
    named: dict[str, type[OpticalModel]] = {}
    package = importlib.import_module(PACKAGE)
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        try:
            module = importlib.import_module(f"{PACKAGE}.{info.name}")
        except Exception as error:  # a third party's module may raise anything
            raise TestbedError(f"import {PACKAGE}.{info.name}: {in_a_line(error)}") from error
        for kind in vars(module).values():
            if not _is_a_model(kind) or kind.__module__ != module.__name__:
                continue
            check_class(kind, f"{module.__name__}:{kind.__name__}")
            if kind.name in named:
                raise TestbedError(
                    f"optical model {kind.name!r}: two have this name, the second in {module.__name__}"
                )
            named[kind.name] = kind
    return named


def find(name: str) -> type[OpticalModel]:
    """Return the model class called `name`; load and check it if it is a user's FILE.py:CLASS. RequestError,
    in one line, lists the known names, or says why the user's class was refused.
    """
    if not is_users(name):
        if name not in models():
            raise RequestError(f"ocs.model: {name}; accepted are {', '.join(models())}, FILE.py:CLASS")
        return models()[name]
    try:
        kind = load(name)
    except Exception as error:  # a user's code may raise anything
        raise RequestError(f"ocs.model: {name}: {in_a_line(error)}") from error
    return check_class(kind, f"ocs.model: {name}")


def model_of(topology: Topology, folder: Path | None = None) -> OpticalModel:
    """Make the optical model that a topology names, with the topology's settings; relative file names in them
    count from `folder`. A user's own class is loaded. RequestError, in one line, for an unknown model or a
    setting that is not one of its parameters.
    """
    kind = find(topology.ocs.model)
    return made(kind, topology, settings_of(kind, topology, folder))


def settings_of(kind: type[OpticalModel], topology: Topology, folder: Path | None = None) -> Settings:
    """Read a topology's settings by the parameters that the model class declares. RequestError for a setting
    that is not one of them.
    """
    spec = topology.ocs
    if spec.is_usual:
        return spec.settings
    return read_settings(kind.parameters, spec.settings, set(topology.optical_ports), folder)


def made(kind: type[OpticalModel], topology: Topology, settings: Settings) -> OpticalModel:
    """Instantiate a topology's model. RequestError, in one line, for any exception that its constructor
    raises.
    """
    spec = topology.ocs
    try:
        return kind(settings, spec.seed, topology.planes)
    except RequestError as error:
        raise RequestError(f"ocs: {error}") from error
    except Exception as error:  # a user's code may raise anything
        raise RequestError(f"ocs.model: {spec.model}: its __init__ raised {in_a_line(error)}") from error


def in_words(settings: Settings) -> Settings:
    """Convert settings back to values of a YAML file, without values that are None, which a file need not
    give.
    """
    own = (
        {of: {name: value_said(value) for name, value in values.items()} for of, values in group.items()}
        for group in (settings.planes, settings.ports)
    )
    values = {name: value_said(value) for name, value in settings.values.items()}
    return Settings({name: value for name, value in values.items() if value is not None}, *own)


def check_class(kind: Any, what: str) -> type[OpticalModel]:
    """Return `kind`, checked to be a usable model class. RequestError, in one line, if it is no subclass of
    OpticalModel, lacks a method, or declares a parameter that no configuration could set.
    """
    if not _is_a_model(kind):
        shown = kind.__name__ if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise RequestError(f"{what} is {shown}; a class of testbed.optics.model.OpticalModel is accepted")
    known: type[OpticalModel] = kind
    for method in ("dark_times", "mean_ms"):
        if getattr(known, method) is getattr(OpticalModel, method):
            raise RequestError(f"{what} has no method {method}; dark_times and mean_ms are needed")
    parameters: Any = known.parameters
    if not isinstance(parameters, tuple | list):
        raise RequestError(f"{what}: parameters is no tuple of Parameter")
    names = set[str]()
    for parameter in parameters:
        if not isinstance(parameter, Parameter):
            raise RequestError(
                f"{what}: its parameters have a {type(parameter).__name__}; Parameter is accepted"
            )
        name = parameter.name
        if not isinstance(name, str) or not name.isidentifier() or name in GENERAL or name in names:
            others = ", ".join(GENERAL)
            raise RequestError(
                f"{what}: its parameter {name!r}; a name of its own is accepted, and none of {others}"
            )
        names.add(name)
        _check_kind(parameter, what)
    return known


def _check_kind(parameter: Parameter, what: str) -> None:
    """Raise RequestError for a parameter whose kind or default no configuration could express."""
    kind: Any = parameter.kind
    if not isinstance(kind, KINDS):
        kinds = ", ".join(each.__name__ for each in KINDS)
        raise RequestError(f"{what}: its parameter {parameter.name} has no kind; {kinds} are accepted")
    if accepted := _lacks(kind):
        raise RequestError(f"{what}: its parameter {parameter.name}: {kind}; {accepted}")
    try:
        default_of(parameter)
    except RequestError as error:
        raise RequestError(f"{what}: its parameter {parameter.name}: {error}") from error
    except Exception as error:  # a default may be anything
        line = in_a_line(error)
        raise RequestError(f"{what}: its parameter {parameter.name}: its default raised {line}") from error


def _lacks(kind: Any) -> str:
    """Return the arguments that a kind accepts, in words, if it has other ones; "" if it is correct."""
    match kind:
        case Quantity(low, high, noun):
            if not (is_number(low) and is_number(high) and low <= high and isinstance(noun, str)):
                return "a number, one that is not below it, and a word for it are accepted"
        case Whole(low, high):
            if not (type(low) is type(high) is int and low <= high):
                return "a whole number, and one that is not below it, are accepted"
        case Word(accepted):
            words: Any = accepted
            if not (
                isinstance(words, tuple | list) and words and all(isinstance(each, str) for each in words)
            ):
                return 'words are accepted, like Word(("calm", "wild"))'
    return ""


def _is_a_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, OpticalModel) and kind is not OpticalModel
