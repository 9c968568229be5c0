"""A plugin of vLLM that logs every draft, by whatever proposer: draft model, EAGLE head, n-gram, …

    pip install --no-deps examples/vllm_draft_log       # into vLLM's environment
    DRAFT_LOG=drafts.jsonl vllm serve MODEL --no-async-scheduling --speculative-config '…' \
      --logprobs-mode raw_logits --per-request-spec-decode-metrics detailed

A line a draft: the ids that were drafted, and the SHA-256 of the tokens before them as little-endian int32, by which
`mars-viz import RESPONSES --drafts drafts.jsonl` finds the draft of each round. Written against vLLM 0.32, whose runner
is no public interface: `take_draft_token_ids` hands the drafts to the scheduler once the step's tokens are known. With
asynchronous scheduling drafts stay on the device, so it is to be switched off.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

LOG = "DRAFT_LOG"
"""Of the environment: the file that is appended to. Unset, nothing is logged."""


def register() -> None:
    """Called by vLLM in each of its processes: hook the model runner."""
    path = os.environ.get(LOG)
    if not path:
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    shipped = GPUModelRunner.take_draft_token_ids
    if getattr(shipped, "logs_drafts", False):  # plugins may be loaded twice in a process
        return

    def logged(self: Any) -> Any:
        drafts = shipped(self)
        if drafts is not None:
            with open(path, "a", encoding="ascii") as log:
                for request, drafted in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
                    log.write(json.dumps(line_of(self.input_batch, request, drafted)) + "\n")
        return drafts

    logged.logs_drafts = True  # type: ignore[attr-defined]
    GPUModelRunner.take_draft_token_ids = logged


def line_of(batch: Any, request: str, drafted: list[int]) -> dict[str, Any]:
    """What is logged of a request's draft."""
    row = batch.req_id_to_index[request]
    count = int(batch.num_tokens_no_spec[row])
    before = batch.token_ids_cpu[row, :count].astype("<i4")
    return {
        "request": request,
        "prefix_len": count,
        "prefix_sha256": hashlib.sha256(before.tobytes()).hexdigest(),
        "drafted": [int(token) for token in drafted],
    }
