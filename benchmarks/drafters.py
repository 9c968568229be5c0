"""All drafters of the built-in target on the same prompts: acceptance by position, τ, cost of a draft, and speed.

    python benchmarks/drafters.py [--gamma 6] [--new-tokens 96] [--repeats 3] [--json FILE]

Strict, greedy. In every turn each prompt is decoded with each drafter and by the target alone, in an order that
rotates. The cost of a draft is the time that drafting took in a round, in passes of the target alone. The ranges are
those of the turns.
"""

from __future__ import annotations

import argparse

import numpy as np
from measuring import json_option, spread, write_json
from tqdm import tqdm

from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk
from mars_viz.prompts import builtin_prompts
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import Prefix

DRAFTERS = ("", "eagle3", "mtp", "dflash", "layers:exit=4", "suffix:n=16", "suffix+eagle3", "ngram:n=3", "trigram")


def decoded(pair: Backend, prompt: Prefix, settings: Settings) -> tuple[int, float, float, list[tuple[int, int]]]:
    """Return tokens, seconds in all and of drafting, and the drafted and kept tokens of each round."""
    rule, speculator = RULES["strict"], pair.speculator(settings, RULES["strict"].needs)
    speculator.prefill(prompt)
    rounds = list(walk(speculator, rule, None, prompt, pair.ending(settings)))
    draft = sum(each.timing.draft for each in rounds)
    total = sum(each.timing.draft + each.timing.verify + each.timing.evidence for each in rounds)
    blocks = [(len(each.speculation), len(each.decision.kept)) for each in rounds]
    return sum(len(each.token_ids) for each in rounds), total, draft, blocks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    json_option(parser)
    options = parser.parse_args()
    settings = Settings(rule="strict", gamma=options.gamma, max_new_tokens=options.new_tokens)
    pairs = {name or "built-in drafter": load_backend(drafter=name or None, device="cpu") for name in DRAFTERS}
    (first, *_) = pairs.values()
    texts = [*STORIES[:4], *(item.prompt for item in builtin_prompts(2).items)]
    prompts = [first.prompt_ids(text, settings) for text in texts]
    paces: dict[str, list[float]] = {name: [] for name in pairs}
    drafting: dict[str, list[float]] = {name: [] for name in pairs}
    tokens, blocks = dict.fromkeys(pairs, 0), {name: list[tuple[int, int]]() for name in pairs}
    for turn in tqdm(range(options.repeats), leave=False):
        spent = {name: np.zeros(4) for name in pairs}  # seconds, those of drafting, tokens, rounds
        alone = np.zeros(2)  # seconds, tokens
        for prompt in prompts:
            written, seconds = decode_alone(first, prompt, settings)
            alone += seconds, len(written)
            for name in [*pairs][turn:] + [*pairs][:turn]:
                count, total, draft, found = decoded(pairs[name], prompt, settings)
                spent[name] += total, draft, count, len(found)
                if not turn:
                    tokens[name] += count
                    blocks[name] += found
        for name, (total, draft, count, rounds) in spent.items():
            paces[name].append(alone[0] / alone[1] / (total / count))
            drafting[name].append(draft / rounds / (alone[0] / alone[1]))
    print(f"{len(prompts)} prompts, γ = {options.gamma}, {first.dtype}, {first.device}")
    figures: dict[str, object] = {"gamma": options.gamma, "prompts": len(prompts), "device": first.device}
    for name in pairs:
        drafts = np.array(blocks[name])
        reached = [int(((drafts[:, 0] > at) & (drafts[:, 1] >= at)).sum()) for at in range(options.gamma)]
        kept = [int((drafts[:, 1] > at).sum()) for at in range(options.gamma)]
        rates = [some / of if of else float("nan") for some, of in zip(kept, reached, strict=True)]
        pace, cost, tau = spread(paces[name]), spread(drafting[name]), tokens[name] / len(drafts)
        each = " ".join(f"{rate:.2f}".removeprefix("0") for rate in rates)
        print(
            f"{name:<18} τ {tau:.2f}  a draft {cost['median']:.2f} passes  {pace['median']:.2f} "
            f"({pace['min']:.2f} to {pace['max']:.2f}) ×  {each}"
        )
        figures[name] = {"tau": tau, "by_position": rates, "draft_in_passes": cost, "over_target": pace}
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
