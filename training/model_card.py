"""The model card of the built-in pair: `python -m training.model_card --data FOLDER`.

Measures the models and writes the card beside their weights; with `--compared NAME=FOLDER` it sets drafters that were
distilled in other ways beside one another.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from mars_viz.analysis.intervals import Interval
from mars_viz.demo import PAIR
from mars_viz.errors import BadInput
from mars_viz.writer import write_file
from training import command
from training.corpus import stories
from training.evaluation import DIALS, EXERCISES, STORIES, Compared, Figures, compare, evaluate


@command
def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m training.model_card", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the training text")
    parser.add_argument("--work", type=Path, default=Path("checkpoints/family"), help="where training kept its curves")
    parser.add_argument(
        "--compared", action="append", default=[], metavar="NAME=FOLDER", help="a drafter distilled in another way"
    )
    options = parser.parse_args(arguments)
    _, held_out = stories(options.data)
    if unnamed := [each for each in options.compared if "=" not in each]:
        raise BadInput(f"--compared {unnamed[0]} has no name. Write it as NAME=FOLDER.")
    named = dict(each.split("=", 1) for each in options.compared)
    figures = evaluate(held_out, options.work / "card")
    compared = compare({name: Path(folder) for name, folder in named.items()}, held_out) if named else []
    card = model_card(figures, compared, options.work)
    write_file(PAIR / "README.md", card.encode())
    print(card)


def model_card(figures: Figures, compared: Sequence[Compared], work: Path) -> str:
    """Markdown."""
    return _CARD.format(
        target_millions=figures.target_parameters / 1e6,
        drafter_millions=figures.drafter_parameters / 1e6,
        f=figures,
        tasks="\n".join(_task_rows(figures)),
        depths="\n".join(_depth_rows(figures)),
        calls="\n".join(f"| {name} | {each.share:.0%} | {each.rejected:.0%} |" for name, each in figures.calls.items()),
        compared="\n".join(f"| {each.name} | {_within(each.agreed)} | {_within(each.overlap)} |" for each in compared),
        exercises=max(EXERCISES.values()),
        fewer=min(EXERCISES.values()),
        stories=STORIES,
        z1=_spread(figures.z1_quantiles, 1),
        ratio=_spread(figures.ratio_quantiles, 2),
        curves="\n\n".join(_curve(work, name) for name in ("target", "drafter")),
    )


def _task_rows(figures: Figures) -> list[str]:
    """A line a drafter and task, and of stories."""
    found = []
    for drafter, by_task in figures.tasks.items():
        for task, each in by_task.items():
            right = " | ".join(f"{value.estimate:.1%}" for value in each.accuracy)
            taus = " | ".join(f"{value.estimate:.2f}" for value in each.tau)
            change = f"{100 * each.change.low:+.1f} to {100 * each.change.high:+.1f}"
            found.append(f"| {drafter} | {task.value} | {right} | {change} | {taus} |")
        dashes = " | ".join("-" for _ in (*DIALS, "change"))
        taus = " | ".join(f"{value:.2f}" for value in figures.stories[drafter])
        found.append(f"| {drafter} | stories | {dashes} | {taus} |")
    return found


def _depth_rows(figures: Figures) -> list[str]:
    return [
        f"| {drafter} | {task.value} | {' '.join(f'{share:.2f}' for share in each.kept)} |"
        for drafter, by_task in figures.tasks.items()
        for task, each in by_task.items()
    ]


def _within(value: Interval) -> str:
    return f"{value.estimate:.3f} ({value.low:.3f} to {value.high:.3f})"


def _curve(work: Path, name: str) -> str:
    """A stage's loss at ten of its steps, and what it took: lines of step, loss, seconds since that start."""
    points = [tuple(map(float, line.split(","))) for line in (work / f"{name}.csv").read_text().splitlines()]
    ends = [before for before, after in itertools.pairwise(points) if after[2] < before[2]]
    seconds = sum(each[2] for each in (*ends, points[-1]))
    few = points[:: max(1, len(points) // 10)]
    losses = ", ".join(f"{step:.0f}: {loss:.2f}" for step, loss, _ in few)
    return f"Loss of the {name} by step ({seconds / 60:.0f} minutes on two cores): {losses}."


def _spread(quantiles: tuple[float, ...], digits: int) -> str:
    lowest, low, middle, high, highest = (f"{value:.{digits}f}" for value in quantiles)
    return f"median {middle}, half between {low} and {high}, 98 % between {lowest} and {highest}"


_CARD = """\
# The built-in pair

A target of {target_millions:.1f} M parameters and a drafter of {drafter_millions:.1f} M, distilled from it: small
enough to ship and to run on any CPU, trained so that margins, rejections and speed-ups are real. Llama architecture,
one byte-level BPE tokenizer of 4,096 entries with single digits, weights in bf16 safetensors, context 512. They write
short simple stories in English and do six graded tasks (`mars_viz/demo/tasks.py`): addition, sorting and a question,
which have one wording each, and counting, who holds a thing, and the turns of a walk, which they reason out in free
wording, so that many words are as good as one another and a few matter. They are for showing how speculative decoding
is verified, and for nothing else.

## Measured

Greedy, γ = 6, float32 on the CPU; {exercises} held-out exercises per task, {fewer} where the first four layers draft,
{stories} held-out stories of 128 tokens.
Accuracy and acceptance length τ under MARS at θ = 1 (strict), 0.9, 0.8 and 0.6, the change of accuracy at 0.9 in points
with its 95 % interval.

| drafter | text | right, strict | 0.9 | 0.8 | 0.6 | change at 0.9 | τ strict | 0.9 | 0.8 | 0.6 |
|---|---|---|---|---|---|---|---|---|---|---|
{tasks}

Text to learn the walks from names the opposite direction in a fifth of its sentences, so there a wrong word is nearly
as good to the target as the right one, and θ = 0.9 is not safe.

Share of drafted tokens that strict keeps at each depth, where all before them were kept:

| drafter | text | depth 1 to 6 |
|---|---|---|
{depths}

Close calls: positions of strict runs where the target's two best logits have a ratio above 0.9, and the share of the
drafts there that strict rejects. The MARS paper (arXiv 2601.15498) reports 53.5 % of them rejected for Qwen3-8B with an
EAGLE-3 head, and 98 to 100 % of accuracy kept at θ = 0.9.

| text | positions above 0.9 | of those drafts rejected |
|---|---|---|
{calls}

- Held-out loss on stories, nats per token: target {f.story_loss:.3f}, drafter {f.drafter_story_loss:.3f}.
- z1 on stories: {z1}; at or below 0 in {f.nonpositive_share:.2%} of rows.
- z2/z1 on stories: {ratio}.

## Ways to distil the drafter

From the same drafter, with the same texts and as many steps each; on the target's own greedy texts after held-out
beginnings. *Agreed*: the share of its tokens that are the drafter's best; *overlap*: 1 less the total variation of the
two laws. 95 % intervals over texts.

| learned by | agreed | overlap |
|---|---|---|
{compared}

## Trained on

| text | licence |
|---|---|
| TinyStories (Eldan and Li 2023), 8,545 stories | CDLA-Sharing-1.0 |
| African Storybook, 316 English stories by the authors in ATTRIBUTION.txt | CC BY 4.0 |
| the graded tasks, generated by `mars_viz/demo/tasks.py` | MIT, as this project |

The text itself is not shipped; the weights are under this project's MIT licence. One story in fifty and a tenth of all
possible exercises were held out.

In two commands, each of which goes on where it was stopped:

    python -m training.train --data FOLDER_WITH_THE_TEXT
    python -m training.family --data FOLDER_WITH_THE_TEXT

The first makes a pair that writes stories and does the tasks of one wording: the target learned from 16 M tokens, the
drafter from 8 M, half of them the target's own texts. The second trains both on and teaches them the free wordings, the
target to say its next token after four of its eight layers as well. What is shipped began from the pair that the first
command made for the version before. The target's second part took seven starts (3,070 steps of 2,048 tokens, 6.3 M),
between which shares of the tasks and wordings of their prompts were changed, so that an uninterrupted training comes
close and is not the same; the drafter's took two (950 steps, 1.9 M).

{curves}
"""


if __name__ == "__main__":
    sys.exit(main())
