"""The choice of models in a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mars_viz import demo
from mars_viz.backend_choice import BackendChoice, checked_tree
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.shapes import CHAIN
from mars_viz.speculators.drafter_names import Eagle3, NamedDrafter
from mars_viz.speculators.names import DEVICES, DTYPES, drafter_for, models_named, server_named
from mars_viz.ui.decode_form import named_models
from mars_viz.ui.links import clipped

LONGEST = 300  # maximum length of a model's name in a link


def written(choice: BackendChoice, begun: BackendChoice) -> dict[str, str]:
    """Return the parameters of a choice, as far as it differs from the server's default `begun`. Folders and server
    addresses are never written."""
    parameters = {name: getattr(choice, name) for name in ("device", "dtype", "tree")}
    parameters = {name: value for name, value in parameters.items() if value != getattr(begun, name)}
    hidden = choice.folders and choice.in_short != choice.names or bool(_server(choice.target))
    if hidden or choice.names == begun.names:
        return parameters
    default_target = demo.BUILT_IN if begun.target or not choice.drafter else ""
    names = {"target": choice.target or default_target, "drafter": choice.drafter}
    return {name: value for name, value in names.items() if value} | parameters


def read(parameters: Mapping[str, str], begun: BackendChoice, complaints: list[str]) -> BackendChoice:
    """Return the choice in a link, based on the server's default `begun`. Problems are added to `complaints`."""
    names = parameters.get("target", "").strip(), parameters.get("drafter", "").strip()
    models = _models(*names, complaints) if any(names) else None
    choice = begun
    if models is not None:
        choice = replace(begun, target=models.target, drafter=models.drafter, folders=models.folders)
    for name, allowed in (("device", DEVICES), ("dtype", DTYPES)):
        value = parameters.get(name, "")
        if value in allowed:
            choice = replace(choice, **{name: value})  # type: ignore[arg-type]
        elif value:
            complaints.append(
                f"There is no {name} “{clipped(value)}”; choose one of {', '.join(allowed)} under Models."
            )
    return _with_shape(choice, parameters.get("tree", ""), complaints)


def _models(target: str, drafter: str, complaints: list[str]) -> BackendChoice | None:
    target = "" if target == demo.BUILT_IN else target
    if not _is_valid(target, drafter):
        complaints.append("The link does not name a target and its drafter, so the models stay as they were.")
        return None
    if _server(target):
        complaints.append(
            "The link names a server as the target. Links choose none, since prompts and a key would be sent there; "
            "type its address under Models if you trust it."
        )
        return None
    try:
        choice = named_models(target, drafter)
    except BadInput as error:
        complaints.append(str(error))
        return None
    drafting = drafter_for(target or None, drafter or None)
    models = set(models_named(target or None, drafter or None)) - {SMOLLM2}
    if models or (isinstance(drafting, Eagle3) and drafting.head):  # possibly on the hub
        complaints.append(
            f"The link chooses the models {' and '.join(filter(None, choice.names))}. Decode would fetch what is not "
            "here yet from the hub; choose others under Models if you do not want that."
        )
    return choice


def _is_valid(target: str, drafter: str) -> bool:
    if any(len(name) > LONGEST or not name.isprintable() for name in (target, drafter)):
        return False
    try:
        server_named(target)
        drafting = drafter_for(target or None, drafter or None)
    except BadInput:
        return False
    return bool(target) or not drafter or isinstance(drafting, NamedDrafter)


def _server(target: str) -> bool:
    try:
        return bool(server_named(target))
    except BadInput:
        return False


def _with_shape(choice: BackendChoice, tree: str, complaints: list[str]) -> BackendChoice:
    if not tree:
        return choice
    try:
        return replace(choice, tree=checked_tree(tree))
    except BadInput as error:
        complaints.append(f"The link's tree “{clipped(tree)}” cannot be drafted, so chains are set. {error}")
        return replace(choice, tree=CHAIN)
