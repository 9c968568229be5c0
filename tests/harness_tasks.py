"""Tasks of lm-evaluation-harness over files of this machine."""

from __future__ import annotations

import json
from typing import Any

import yaml
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from mars_viz.demo.tasks import Task
from mars_viz.prompts import builtin_prompts

NUMBER = "(-?[$0-9.,]{2,})|(-?[0-9]+)"
EXACT = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True}
EXACT |= {"regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"]}
STRICT, FLEXIBLE = "exact_match,strict-match", "exact_match,flexible-extract"


def documents(count, kinds=(Task.ADDITION,), seed=0):
    items = builtin_prompts(count, kinds=kinds, seed=seed).items
    return [{"question": item.prompt, "answer": item.answer or ""} for item in items]


def regex(pattern, **more):
    return {"function": "regex", "regex_pattern": pattern, **more}


def written(folder, name, docs):
    path = folder / name
    path.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return str(path)


def gsm8k_form(folder, count=6, *, kind=Task.ADDITION, flexible=-1, **changes):
    docs = {"train": documents(4, seed=1), "test": documents(count, (kind,))}
    files = {name: written(folder, f"{name}.jsonl", each) for name, each in docs.items()}
    told: dict[str, Any] = {
        "task": "additions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "output_type": "generate_until",
        "training_split": "train",
        "fewshot_split": "train",
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [EXACT],
        "generation_kwargs": {"until": ["carry 1.\n6", "</s>"], "do_sample": False, "temperature": 0.0},
        "num_fewshot": 0,
        "filter_list": [
            {"name": "strict-match", "filter": [regex("Answer: (\\-?[0-9\\.\\,]+)"), {"function": "take_first"}]},
            {"name": "flexible-extract", "filter": [regex(NUMBER, group_select=flexible), {"function": "take_first"}]},
        ],
    }
    path = folder / "additions.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in (told | changes).items() if value is not None}))
    return path


class Blank(LM):
    """Writes nothing, and keeps the prompts."""

    loglikelihood = loglikelihood_rolling = None

    def __init__(self):
        super().__init__()
        self.asked: list[str] = []

    def generate_until(self, requests):
        self.asked += [request.args[0] for request in requests]
        return [""] * len(requests)


def evaluated(model, task, **how):
    found = simple_evaluate(
        model=model, tasks=[str(task)], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0, **how
    )
    return dict(found)


def graded(results, score):
    metric, _, name = score.partition(",")
    ((_, samples),) = results["samples"].items()
    known = {each["doc_id"]: each[metric] for each in samples if each["filter"] == name}
    return [float(known[place]) for place in sorted(known)]
