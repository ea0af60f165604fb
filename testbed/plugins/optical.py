"""The optical models by name, a module of testbed/optics/models each; and a user's own, by FILE.py:CLASS, for
a process that runs as that user. Owns no model.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

from testbed.errors import RequestError, TestbedError
from testbed.optics.model import Duration, OpticalModel, Parameter, Quantity, Settings, Whole, Word, YesNo
from testbed.plugins.user_class import in_a_line, is_users, load
from testbed.topology.fields import is_number
from testbed.topology.load_optical import GENERAL, default_of, read_settings
from testbed.topology.model import Topology
from testbed.topology.yaml_form import values_said

PACKAGE = "testbed.optics.models"
KINDS = (Duration, Quantity, Whole, Word, YesNo)


@functools.cache
def models() -> dict[str, type[OpticalModel]]:
    """Return all models by name. TestbedError names a module that cannot be imported or has a model that
    cannot be used, or a name that two models have.
    """
    named: dict[str, type[OpticalModel]] = {}
    package = importlib.import_module(PACKAGE)
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        try:
            module = importlib.import_module(f"{PACKAGE}.{info.name}")
        except Exception as error:  # a module of somebody's may raise anything
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
    """Return the model of that name, or load a user's own. RequestError, in one line, names those that there
    are, or what is wrong with the user's.
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
    """Return the model of a topology, with its settings, whose files are in `folder`; a user's own is loaded.
    RequestError, in one line, where there is none or its settings are none of its parameters'.
    """
    kind = find(topology.ocs.model)
    return made(kind, topology, settings_of(kind, topology, folder))


def settings_of(kind: type[OpticalModel], topology: Topology, folder: Path | None = None) -> Settings:
    """Return a topology's settings as its model's class has them. RequestError where one is none of its
    parameters'.
    """
    spec = topology.ocs
    if spec.is_usual:
        return spec.settings
    return read_settings(kind.parameters, spec.settings, set(topology.optical_ports), folder)


def made(kind: type[OpticalModel], topology: Topology, settings: Settings) -> OpticalModel:
    """Make a topology's model. RequestError, in one line, for whatever its class raises."""
    spec = topology.ocs
    try:
        return kind(settings, spec.seed, topology.planes)
    except RequestError as error:
        raise RequestError(f"ocs: {error}") from error
    except Exception as error:  # a user's code may raise anything
        raise RequestError(f"ocs.model: {spec.model}: its __init__ raised {in_a_line(error)}") from error


def in_words(settings: Settings) -> Settings:
    """Return settings in the words of a YAML file, those alone that it would have to say."""
    own = (
        {name: values_said(values) for name, values in group.items()}
        for group in (settings.planes, settings.ports)
    )
    said = {name: value for name, value in values_said(settings.values).items() if value is not None}
    return Settings(said, *own)


def check_class(kind: Any, what: str) -> type[OpticalModel]:
    """Return what is held to be a model. RequestError, in one line, where it is none or declares what no
    configuration can say.
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
    """RequestError for a parameter whose kind or default a configuration could not have said."""
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
    """Return what a kind is accepted with, if it has something else; nothing otherwise."""
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
