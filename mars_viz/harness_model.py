"""MARS Viz as a model of lm-evaluation-harness, named `mars-viz`, for any generate_until task.

Importing this module registers the model, because the harness does not discover other packages. `mars-viz eval` imports
it before running the harness's command line; in Python, `import mars_viz.harness_model` enables
`lm_eval.simple_evaluate(model="mars-viz")`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any, NoReturn

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import simple_parse_args_string
from tqdm import tqdm

from mars_viz.backend_choice import backend
from mars_viz.errors import SettingError
from mars_viz.options import declared
from mars_viz.prompts.files import LENGTH
from mars_viz.prompts.harness import cut
from mars_viz.recording import record_all
from mars_viz.rules import rule_named
from mars_viz.run import LAW, Run, Settings, settings_from, stops
from mars_viz.speculators.names import pair_named
from mars_viz.walk import AT_ONCE

_LAW = tuple(each.name for each in LAW)
_HONOURED = ("until", "max_gen_toks", "do_sample", *_LAW)
UNSAID_DEVICE = "cuda:0"  # the default of the harness's --device, also on machines without a GPU


@register_model("mars-viz")
class MarsVizLM(LM):  # type: ignore[misc]
    """Speculative decoding by a rule at a dial value, with the built-in pair or any other."""

    def __init__(
        self,
        target: str | None = None,
        drafter: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        chat: bool | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        **settings: Any,
    ):
        """Load the models, with the arguments of `mars_viz.record`. Raises BadInput. A given length limit applies to
        tasks without one. Given values of those that shape the distribution override the task's. `batch_size` prompts
        are decoded together (None, 1 and 'auto': 8)."""
        super().__init__()
        allowed = ["target", "drafter", *(name for name in declared(Settings) if name != "stop")]
        allowed += ["device", "dtype", "chat"]
        if others := settings.keys() - set(allowed):
            raise SettingError(f"--model_args has no {min(others)}. There are {', '.join(allowed)}.")
        if chat is not None and not isinstance(chat, bool):
            raise SettingError(f"chat is {chat!r}; it must be True or False.")
        given: Any = {name: value for name, value in settings.items() if value is not None}
        self._drawing: dict[str, Any] = {name: given[name] for name in _LAW if name in given}
        made = settings_from({"max_new_tokens": LENGTH} | given)
        self._settings = replace(made, dial=rule_named(made.rule).checked_dial(made.dial))
        self._chat = chat
        self._decoded = {"prompts": 0, "tokens": 0, "rounds": 0, "seconds": 0.0}  # so far; seconds without prefill
        self._batch = AT_ONCE if batch_size in (None, 1, "1", "auto") else int(batch_size)
        pair_named(target, drafter).check(self._settings)
        self._backend = backend(target=target, drafter=drafter, device=device, dtype=dtype)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> MarsVizLM:
        """Create from --model_args, with the harness's other options as defaults."""
        more = {name: value for name, value in (additional_config or {}).items() if value is not None}
        if more.get("device") == UNSAID_DEVICE:
            del more["device"]
        return cls(**more | arg_dict)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> MarsVizLM:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text for each prompt up to its stop string. Raises BadInput for an unsupported request."""
        requested = [(request.args[0], self._asked(request.args[1])) for request in requests]
        texts, hidden = [], disable_tqdm or not sys.stderr.isatty()
        with tqdm(total=len(requested), desc="Decoding", unit=" prompts", disable=hidden) as bar:
            for request, run in zip(requests, self._runs(requested), strict=True):
                counts = (1, len(run.token_ids), len(run.rounds), run.provenance.seconds)
                for name, count in zip(self._decoded, counts, strict=True):
                    self._decoded[name] += count
                texts.append(cut(run.text, run.settings.stop))
                self.cache_hook.add_partial("generate_until", request.args, texts[-1])
                bar.update()
        return texts

    def _runs(self, asked: Sequence[tuple[str, Settings]]) -> Iterator[Run]:
        for settings, group in groupby(asked, key=lambda each: each[1]):
            prompts = [prompt for prompt, _ in group]
            yield from record_all(self._backend, prompts, settings, chat=self._chat, batch=self._batch)

    def _asked(self, about: Mapping[str, Any]) -> Settings:
        options = dict(normalize_gen_kwargs(dict(about), default_max_gen_toks=self._settings.max_new_tokens))
        if foreign := sorted(options.keys() - set(_HONOURED)):
            raise SettingError(
                f"The task, or --gen_kwargs, asks for {foreign[0]}, which is not done here. Leave it out; there are "
                f"{', '.join(_HONOURED)}."
            )
        sampled = {name: options[name] for name in _LAW if options.get(name) is not None}
        drawing = sampled if options["do_sample"] else {}
        until = tuple(filter(None, stops(options["until"])))
        return replace(self._settings, stop=until, max_new_tokens=options["max_gen_toks"], **drawing | self._drawing)

    def get_model_info(self) -> dict[str, Any]:
        facts = {"settings": asdict(self._settings), "provenance": asdict(self._backend.provenance(chat=self._chat))}
        decoded, pace = self._decoded, {"tau": "rounds", "tokens_per_second": "seconds"}
        paces = {name: decoded["tokens"] / (decoded[by] or math.nan) for name, by in pace.items()}
        return {"mars_viz": facts | {"decoded": decoded | paces}}

    def loglikelihood(self, requests: list[Instance]) -> NoReturn:
        raise SettingError(_NO_TEXT)

    loglikelihood_rolling = loglikelihood

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> NoReturn:
        """Raise SettingError: the tokenizer's template is applied when the prompt is encoded."""
        raise SettingError("Leave --apply_chat_template out; --model_args chat=True makes a turn of each prompt.")

    @property
    def tokenizer_name(self) -> str:
        return self._backend.target.name


_NO_TEXT = (
    "The task compares probabilities of given texts (loglikelihood, multiple_choice): a verification rule changes "
    "nothing there. Give a generate_until task, or evaluate the target itself with --model hf."
)
