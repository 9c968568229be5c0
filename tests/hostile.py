"""Records whose every text is an attack: markup, Markdown, addresses, marks of direction, escapes of terminals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from factories import toy_map, toy_run
from sweep_cases import COSTS

from mars_viz.chat import NO_HISTORY, History
from mars_viz.dialmap import span_of
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.rules import rule_named
from mars_viz.run import LONGEST_STOP, Piece, Run, Settings
from mars_viz.run_with_map import mapped
from mars_viz.sweep import Sweep, load_sweep
from mars_viz.sweep.timing import keep_check
from tests.sweep_cases import timing
from tests.tables import Words, table_backend

HOST = "hostile.invalid"
FIXED = ("rule", "tree", "controller", "grader", "question")
"""Fields without free text: names from a registry, and keys."""
ATTACKS = tuple(
    before + word + after
    for before, word, after in (
        ("![", "evilimage", f"](http://{HOST}/i)"),
        ("<img src=http://" + HOST + "/t alt=", "eviltag", ">"),
        ("[", "evillink", f"](http://{HOST}/l)"),
        ("\u202e", "evilturned", "\u2069\u2066\u200f"),
        (":red[", "evilred", "]"),
        (f"http://{HOST}/", "eviladdress", ""),
        ("<script>document.title=", "1;evilscript", "</script>"),
        ("\x1b[31m", "evilescape", "\x07\x9b"),
        ("**", "evilstrong", "**"),
        ("[x](javascript:document.title=", "eviljavascript", ")"),
        (":material/", "evilicon", ": :streamlit: :smile:"),
        ("$", "evilmath", "$"),
        ("`", "eviltick", "` ~~evilstrike~~ _evilem_"),
        ("'\"><a href=http://" + HOST + "/a onmouseover=1>", "evilanchor", "</a>"),
        ("%{x}<b>", "evilbold", "</b> -> &lt;evilentity&gt;"),
        ("\n\n# ", "evilheading", "\n\n- evillist\n\n|evil|table|\n|---|---|\n|a|b|\n\n    evilcode\n"),
        (f"www.{HOST} a@{HOST} ", "evilplain", ""),
    )
)


@dataclass(slots=True)
class Attacker:
    """Puts an attack into every text of a record. The first one differs from field to field, since pages cut texts."""

    turn: int = 0
    fields: set[str] = field(default_factory=set)

    def text(self, name: str) -> str:
        at = (self.turn + sum(map(ord, name))) % len(ATTACKS)
        self.fields.add(name)
        return " ".join([*ATTACKS[at:], *ATTACKS[:at]])

    def on(self, value: Any, name: str = "") -> Any:
        """Replace every text in a record."""
        if name in FIXED:
            return value
        match value:
            case str():
                return self.text(name)[:LONGEST_STOP] if name == "stop" else self.text(name)
            case Piece():
                return replace(value, data=f"{self.text(f'piece {value.text}')}{value.text}".encode())
            case tuple() if value and all(isinstance(each, str) for each in value):
                return tuple(self.on(each, name) for each in value)
            case Mapping():
                return {self.on(key, f"{name} key"): self.on(each, f"{name} {key}") for key, each in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                changed = {each.name: self.on(getattr(value, each.name), each.name) for each in fields(value)}
                return replace(value, **changed)
        return value


def attacked(run: Run, turn: int = 0) -> Run:
    """Put an attack into every text of a run and of its dial map."""
    attacker, made = Attacker(turn), run.dial_map
    hostile: Run = attacker.on(replace(run, dial_map=None))
    assert {"title", "prompt", "stop", "device", "target", "drafter", "dtype", "created"} <= attacker.fields
    return hostile if made is None else mapped(hostile, replace(made, frame=hostile.without_rounds))


def folder_name(turn: int) -> str:
    """An attack as the name of a folder."""
    return Attacker(turn).text("folder").replace("/", "\u2215").encode()[:180].decode(errors="ignore")


def runs() -> dict[str, Run]:
    """By folder: greedy with a map, sampled, and without rounds."""
    one = toy_run(max_new_tokens=24, vocabulary=200, model_seed=2, stop=("never",))
    made, _ = toy_map(one.settings, low=0.5, model_seed=2, vocabulary=200)
    sampled = toy_run(rule="lenience", temperature=1.0, max_new_tokens=24, stop=("never",), seed=3)
    return {
        "mapped": attacked(mapped(one, replace(made, frame=one.without_rounds))),
        folder_name(3): attacked(sampled, 3),
        "empty": attacked(replace(one, rounds=()), 6),
    }


def prompts() -> PromptSet:
    """A prompt that begins with each attack; some have answers that texts can contain, and the last is refused."""
    plain = PromptItem("id", "category", "prompt", "answer", "contains")
    items = [Attacker(turn).on(plain) for turn in range(len(ATTACKS))]
    answered = [replace(item, answer=f"w{turn + 1}") if turn % 4 else item for turn, item in enumerate(items)]
    return PromptSet(Attacker().text("prompt set"), tuple(answered))


class HostileWords(Words):
    """A tokenizer whose pieces are attacks, as is its error for the one prompt that it refuses."""

    def __init__(self, refused: str, attacker: Attacker):
        super().__init__()
        self._refused, self._attacker = refused, attacker
        self.pieces = attacker.on(self.pieces)

    has_template = False

    def encode(self, prompt: str, history: History = NO_HISTORY, *, chat: bool | None = None) -> tuple[int, ...]:
        if prompt == self._refused:
            raise BadInput(self._attacker.text("error"))
        return super().encode(prompt, history, chat=chat)


def sweep(out: Path, rule: str = "mars") -> None:
    """A sweep of these prompts, and a wall-clock check of it."""
    settings = Settings(rule=rule, gamma=3, max_new_tokens=8)
    asked, attacker, backend = prompts(), Attacker(len(rule)), table_backend()
    hostile = replace(
        backend,
        target=replace(backend.target, name=attacker.text("target"), revision=attacker.text("target_revision")),
        drafter=replace(backend.drafter, name=attacker.text("drafter"), revision=attacker.text("drafter_revision")),
        dtype=attacker.text("dtype"),
        processor=attacker.text("device"),
        versions=attacker.on(backend.versions, "versions"),
        tokenizer=HostileWords(asked.items[-1].prompt, attacker),
    )
    span = span_of(rule_named(rule), None, None, (settings.gamma,))
    Sweep(hostile, asked, settings, span, out, costs=attacker.on(COSTS)).finish()
    check = replace(timing(), rule=load_sweep(out).plan.rule.name)
    keep_check(out, replace(check, device=attacker.text("device"), created=attacker.text("created")))
