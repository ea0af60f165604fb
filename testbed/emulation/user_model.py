"""Check an optical model given by FILE.py:CLASS before a testbed starts: the class is loaded and tried in a
process of its user's, never as root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.emulation.user_topo import HostModule, answer_of
from testbed.errors import RequestError
from testbed.optics.model import Settings
from testbed.plugins.optical import in_words, model_of
from testbed.plugins.user_class import is_users
from testbed.topology.model import Topology
from testbed.topology.optical import OcsSpec


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's settings in words and its mean dark times by plane, or in one line why there are none;
    unchecked.
    """

    settings: Any = None
    means_ms: Any = None
    refused: Any = None


def settled(topology: Topology, folder: Path | None, caller: Caller, environ: Mapping[str, str]) -> Topology:
    """Return the topology with its optical model's settings parsed and mean dark times filled in. Files that
    settings name are relative to `folder`. RequestError, in one line, if the class or a setting is not
    accepted.
    """
    spec = topology.ocs
    if spec.is_usual:
        return topology
    if not is_users(spec.model):
        model = model_of(topology, folder)
        means_ms = {plane: model.mean_ms(plane) for plane in spec.planes or ("",)}
        return replace(topology, ocs=_with(spec, in_words(model.settings), means_ms))
    try:
        described = topology.to_json()
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"ocs: {error}; numbers, texts, lists, and keys and values are accepted"
        ) from error
    question = {"topology": described, "folder": str(folder) if folder else None, "check": True}
    try:
        host = HostModule(("testbed.emulation.model_host", spec.model), "dark times")
        answer = answer_of(host, question, ModelAnswer, caller, environ)
        if answer.refused is not None:
            raise RequestError(" ".join(str(answer.refused).split()))
        means_ms = {str(plane): float(mean_ms) for plane, mean_ms in answer.means_ms.items()}
        settings = Settings(**answer.settings)
    except RequestError as error:
        line = str(error)
        raise RequestError(line if line.startswith("ocs") else f"ocs.model: {spec.model}: {line}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise RequestError(f"ocs.model: {spec.model}: its answer is none: {error}") from error
    return replace(topology, ocs=_with(spec, settings, means_ms))


def _with(spec: OcsSpec, settings: Settings, means_ms: Mapping[str, float]) -> OcsSpec:
    return replace(spec, settings=settings, means_ms=means_ms)
