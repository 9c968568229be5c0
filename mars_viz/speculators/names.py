"""Names of models, drafters, devices and dtypes, and refusals before the model libraries are loaded.

Knows names and folders; knows no hub and no devices, and imports no model library.
"""

from __future__ import annotations

import importlib.util
import json
import re
from contextlib import suppress
from os import PathLike
from pathlib import Path
from urllib.parse import urlsplit

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.permissions import PATHS
from mars_viz.run import Settings
from mars_viz.speculators.drafter_names import (
    Eagle3,
    Layers,
    NamedDrafter,
    Ngram,
    ReadsText,
    Trimmed,
    chains_alone,
    drafter_named,
)
from mars_viz.speculators.gguf_files import ENDING, header_of, local_gguf

_WORD = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"{_WORD}(/{_WORD})?(:{_WORD}\.gguf)?", re.ASCII)
NO_SERVER = f"A server's address is for those who may name folders here ({PATHS}); name a model's id on the hub."
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "float16")
ModelName = str | PathLike[str] | None
"""A model's name, folder or file, or a server's address; None if the user named none."""


def server_named(name: ModelName) -> str:
    """Return the address of the server that a target's name is, http://HOST:PORT; empty for other names. Raises
    BadInput for an invalid address."""
    if not isinstance(name, str) or not name.lower().startswith(("http://", "https://")):
        return ""
    try:
        parts = urlsplit(name)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.path.rstrip("/") not in ("", "/v1"):
        raise ModelError(f"{shortened(name)} is no server's address; give one as http://HOST:PORT.")
    if "@" in parts.netloc:
        raise ModelError("A server's address holds no user and no password; put a key into the environment.")
    return f"{parts.scheme}://{parts.netloc}"


def drafter_for(target: ModelName, drafter: ModelName) -> NamedDrafter | str:
    """Return a drafter that is no model by itself, or the drafting model's name, '' for the built-in one. A target
    without a drafter gets its EAGLE-3 head if one comes with the product, else prompt lookup. Raises BadInput."""
    if drafter is None:
        return "" if target is None else Eagle3() if demo.head_for(str(target)) else Ngram()
    return drafter_named(str(drafter)) or str(drafter)


def whole_drafter(target: ModelName, drafter: ModelName) -> NamedDrafter | str:
    """Return `drafter_for`, or the drafter that it trims. Raises BadInput if it names none to trim."""
    trimmed = drafter_for(target, drafter)
    if not isinstance(trimmed, Trimmed):
        return trimmed
    whole = drafter_for(target, trimmed.of or None)
    if isinstance(whole, Ngram):
        raise SettingError(
            f"{trimmed.name} does not say which drafter is trimmed; write trimmed:m={trimmed.m},of=MODEL, a hub id or "
            "a folder."
        )
    return whole


def models_named(target: ModelName, drafter: ModelName) -> list[str]:
    """Return the names of models to load here, without the built-in ones. Raises BadInput."""
    named = (None if server_named(target) else target, whole_drafter(target, drafter))
    return [str(name) for name in named if name and not isinstance(name, NamedDrafter)]


def check_names(target: ModelName, drafter: ModelName, *, device: str, dtype: str, folders: bool = True) -> None:
    """Raise BadInput, with the remedy, for names that cannot work on any machine. None is the built-in model. Without
    `folders` only ids on the hub are taken, and no folder is looked for."""
    named, drafting = drafter_for(target, drafter), whole_drafter(target, drafter)
    if server_named(target):
        if not folders:
            raise SettingError(NO_SERVER)
        if isinstance(drafting, Eagle3 | Layers):
            raise SettingError(
                f"{drafting.name} reads what happens inside the target, which a server does not tell; take a drafter "
                "that is a model, or ngram:n=3."
            )
    if isinstance(drafting, str) and server_named(drafting):
        raise ModelError("A server can be the target, and drafts nothing; name a drafter of this machine.")
    if target is None and drafting and isinstance(drafting, str):
        raise ModelError("A drafter was given without a target; name both, or neither for the built-in pair.")
    if device not in DEVICES:
        raise SettingError(f"There is no device {device!r}; choose one of {', '.join(DEVICES)}.")
    if dtype not in DTYPES:
        raise SettingError(f"There is no dtype {dtype!r}; choose one of {', '.join(DTYPES)}.")
    for name in models_named(target, drafter):
        local_place(name) if folders else check_id(name)
    if isinstance(drafting, Eagle3):
        _check_head(drafting.head, target, folders)
    if isinstance(named, ReadsText) and named.text:
        if not folders:
            raise SettingError(
                f"A drafter's text is a file of the server, which its visitors may not name here ({PATHS}); leave it "
                "out."
            )
        if not Path(named.text).is_file():
            raise SettingError(
                f"There is no file {shortened(named.text)}. Give the drafter a text file that can be read."
            )


def check_device_map(target: ModelName, device: str) -> None:
    """Raise BadInput, with the remedy, if a target of this name cannot be spread over several devices."""
    if server_named(target):
        raise SettingError("The server of a served target places its weights; leave --device-map out.")
    if device != "auto":
        raise SettingError(f"A device map chooses the devices itself, and {device} was asked for; leave --device out.")
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError("A device map needs accelerate, which is not installed. Run: pip install accelerate")


def check_trees(settings: Settings, target: ModelName, drafter: ModelName) -> None:
    """Raise BadInput if drafts are to be trees, and the rule or the drafter of these names takes none."""
    if not settings.drafts_trees:
        return
    if settings.refused_draft:
        raise SettingError(settings.refused_draft)
    drafting = drafter_for(target, drafter)
    if isinstance(drafting, NamedDrafter) and not drafting.drafts_trees:
        raise SettingError(chains_alone(drafting.name))


def check_controller(settings: Settings, target: ModelName, drafter: ModelName) -> None:
    """Raise BadInput if a controller is to cut the drafts of a drafter without a distribution."""
    if settings.control is not None and (reason := never_stopped(target, drafter)):
        raise SettingError(reason)


def never_stopped(target: ModelName, drafter: ModelName) -> str:
    """Return why no controller ever stops the drafter of these names, with the remedy; empty if one may. Raises
    BadInput for invalid names."""
    drafting = drafter_for(target, drafter)
    if not isinstance(drafting, NamedDrafter) or drafting.keeps_cache:
        return ""
    return (
        f"{drafting.name} drafts without probabilities, so a draft-length controller would never stop it; take a "
        "drafter that is a model or an EAGLE-3 head, or no controller."
    )


def _check_head(head: str, target: ModelName, folders: bool) -> None:
    if not head:
        folder = demo.head_for(None if target is None else str(target))
        if folder is None:
            raise ModelError(
                "eagle3 alone is the head of the built-in target or of smollm2; name the folder of one that was "
                f"trained for {shortened(str(target))}: eagle3:HEADDIR."
            )
        head = str(folder)
    elif not folders:
        check_id(head)
        return
    if is_place(head) and not (Path(head) / "config.json").is_file():
        raise ModelError(f"{shortened(head)} holds no config.json; give the folder of an EAGLE-3 head.")


def check_id(name: str) -> None:
    """Raise BadInput unless the name is an id on the hub or an installed package."""
    if name == demo.SMOLLM2:
        local_place(name)
    elif not _ID.fullmatch(name):
        raise ModelError(
            f"{name!r} is not the id of a model on the hub, such as org/name. Folders can be named on the "
            f"command line, and on servers that let visitors name them ({PATHS})."
        )


def local_place(name: str) -> Path | None:
    """Return the folder or the GGUF file of a model on this machine, or None if the name is an id on the hub.

    Raises BadInput for a path that leads nowhere, for a folder without a configuration, a tokenizer or safetensors, and
    for a GGUF file that cannot be read.
    """
    if (file := local_gguf(name)) is not None:
        header_of(file)
        return file
    folder = Path(name)
    if not is_place(name):
        return None
    for pattern, what in (("config.json", "config.json"), ("tokenizer*.json", "tokenizer.json")):
        if not list(folder.glob(pattern)):
            raise ModelError(
                f"{name} contains no {what} and no GGUF file; save the model there with save_pretrained, tokenizer "
                "included."
            )
    if not list(folder.glob("*.safetensors")):
        raise ModelError(
            f"{name} contains no *.safetensors and no GGUF file; only these formats are loaded. Save it again with "
            "save_pretrained."
        )
    return folder


def has_template(target: str) -> bool | None:
    """Return whether a target has a chat template, by its files on this machine; None if they don't show it."""
    if not target:
        return False
    with suppress(BadInput, OSError, ValueError):
        if (file := local_gguf(target)) is not None:
            return "tokenizer.chat_template" in header_of(file).values
        folder = Path(target)
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        return bool(config.get("chat_template")) or any(folder.glob("chat_template.*"))
    return None


def is_place(name: str) -> bool:
    """True if there is such a file or folder, False if the name may be an id on the hub.

    Raises ModelError for a path that leads nowhere.
    """
    folder = Path(name)
    if folder.exists():
        return True
    is_path = folder.is_absolute() or name.startswith(".") or name.count("/") > 1
    if is_path or (name.lower().endswith(ENDING) and ":" not in name):
        raise ModelError(
            f"There is no folder or file {name}. Give a model's folder, a GGUF file or an id on the hub, such as "
            "org/name."
        )
    return False
