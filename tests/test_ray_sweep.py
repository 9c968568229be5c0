"""Sweeps on Ray: the files that one process writes, whoever dies."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import ray
from ray._private.utils import get_ray_address_file
from ray.cluster_utils import Cluster
from sweep_cases import SETTINGS, toy_prompts
from test_turns import talks

from mars_viz import cli
from mars_viz.axis import Span
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.sweep import Sweep, on_ray, texts
from mars_viz.sweep.on_ray import RayRequest, RayWorker, WorkerPool, joined_cluster, sweep_with
from mars_viz.sweep.store import open_store
from tests.ray_toys import ToyModels
from tests.tables import table_backend

SPAN = Span(0.0, 1.0, (3,))
PATIENCE = 240  # seconds; a busy machine is no reason to fail


@pytest.fixture(scope="module")
def cluster():
    home = tempfile.mkdtemp(prefix="mr-")  # short, for sockets' names
    Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)  # a first `Cluster` on a machine writes there unasked
    soon = {"health_check_period_ms": 500, "health_check_timeout_ms": 2000, "health_check_failure_threshold": 4}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in on_ray._SAID.items():
            patch.setenv(name, value)
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20, "temp_dir": home}
        made = Cluster(initialize_head=True, head_node_args={**head, "_system_config": soon})
        made.add_node(num_cpus=2, object_store_memory=80 << 20)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        with joined_cluster("auto"):
            yield made
        ray.shutdown()
        made.shutdown()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def unmeasured_workers(monkeypatch):
    monkeypatch.setattr("mars_viz.sweep.sweep.costs_for", lambda *_: None)


@contextmanager
def pool_of(models, tell=lambda said: None, wait=lambda pool: False, batch=2, **request):
    """A pool of workers, once `wait` is over."""
    with closing(WorkerPool(models, SETTINGS, RayRequest("auto", **request), "cpu", tell, batch)) as pool:
        end = time.monotonic() + PATIENCE
        while wait(pool):
            assert time.monotonic() < end
            pool.grow(pool.wanted)
            pool.settle(0.5)
        yield pool


def swept(pool, out, prompts, *, resume=False):
    return sweep_with(pool, prompts, SETTINGS, SPAN, out, resume=resume)


def finished(sweep, each=lambda: None):
    end = time.monotonic() + PATIENCE
    for _ in sweep:
        assert time.monotonic() < end, "it does not end"
        each()
    return sweep.result()


def check_same(one, prompts, letters=10000):
    """Check that the files are those of a sweep in one process; return its result."""
    other = one.with_name(f"plain {one.name}")
    result = Sweep(table_backend(letters=letters), prompts, SETTINGS, SPAN, other).finish()
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (one, other)]
    assert names[0] == names[1]
    for name in names[0]:
        ours, theirs = one / name, other / name
        if name.startswith("results/"):
            tables = [pq.read_table(path) for path in (ours, theirs)]
            assert tables[0].schema == tables[1].schema
            assert tables[0].drop(["seconds"]).equals(tables[1].drop(["seconds"])), name
        elif name == "sweep.json":
            plans = [json.loads(path.read_text())["plan"] for path in (ours, theirs)]
            for plan in plans:
                del plan["provenance"]["created"]
            assert plans[0] == plans[1]
        elif ours.is_file() and name != ".lock":  # which says when it was written
            assert ours.read_bytes() == theirs.read_bytes(), name
    return result


def test_the_files_are_those_of_one_process_even_if_a_worker_is_killed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "BATCH", 4)
    toys, told, talk, killed = ToyModels(pause=0.05, slow="prompt 0", letters=30), [], talks(6), []
    with pool_of(toys, told.append, lambda pool: len(pool.ready) < 2, batch=4) as pool:
        sweep = swept(pool, tmp_path / "ray", toy_prompts(10))
        assert finished(sweep).complete
        by_worker = sweep.progress.workers
        assert len(by_worker) == 2 and min(by_worker) > 0 and sum(by_worker) == 10
        check_same(tmp_path / "ray", toy_prompts(10))
        next(progress for progress in swept(pool, tmp_path / "talk", talk) if progress.finished == 4)
        result = finished(swept(pool, tmp_path / "talk", talk, resume=True))
        assert result.failures == check_same(tmp_path / "talk", talk, 30).failures != ()
        sweep = swept(pool, tmp_path / "killed", toy_prompts(12))

        def kill():
            busy = [worker for worker in pool.ready if 0 in [index for index, *_ in worker.calls.values()]]
            if busy and not killed:
                killed.append(busy[0])
                ray.kill(busy[0].actor)

        finished(sweep, kill)
        assert killed and killed[0] not in pool.workers and any("is lost" in message for message in told)
        assert sweep.progress.finished == 12
        check_same(tmp_path / "killed", toy_prompts(12))


def test_few_prompts_are_not_all_the_first_workers(monkeypatch):
    actor = SimpleNamespace(map=SimpleNamespace(remote=lambda *arguments: id(arguments[-1])))
    monkeypatch.setattr(on_ray, "room", lambda cpus, gpus: 2)
    pool = WorkerPool(None, SETTINGS, RayRequest("auto", gpus=0), "cpu", None, batch=8)
    pool.workers += [one := RayWorker(actor, {}, provenance=True), RayWorker(actor, {})]
    for index, item in enumerate(toy_prompts(6).items):
        pool.begin(index, item, ())
    pool.hand_out()
    assert [index for index, *_ in one.calls.values()] == [0, 1, 2]


@pytest.mark.long
def test_workers_that_die_or_differ_and_the_command(cluster, tmp_path, capsys, monkeypatch, unmeasured):
    deadly = ToyModels(deadly="prompt 3")
    with pool_of(deadly, workers=1, batch=1) as pool, pytest.raises(BadInput, match="ended while they had p3"):
        finished(swept(pool, tmp_path / "dead", toy_prompts(6)))
    assert open_store(tmp_path / "dead").finished() == 3
    with pool_of(ToyModels(refused="No such model.")) as pool, pytest.raises(BadInput, match="No such model."):
        swept(pool, tmp_path / "refused", toy_prompts(2))
    assert not (tmp_path / "refused").exists()
    with pytest.raises(SettingError, match="64 cores"), pool_of(ToyModels(), cpus=64):
        pass
    said: list[str] = []
    with pool_of(ToyModels(apart=True), said.append, lambda pool: not said) as pool:
        sweep = swept(pool, tmp_path / "apart", toy_prompts(6))
        assert finished(sweep).complete and len(sweep.progress.workers) == 1
    assert len(said) == 1 and "turned away" in said[0] and "device is Toy" in said[0]
    asked = "sweep --set builtin:counting --limit 4 --low 0.8 --max-new-tokens 16 --ray auto --ray-workers 1 --json"
    assert cli.main([*asked.split(), "--out", str(tmp_path / "command")]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out[told.out.index("{") :])["prompts"] == 4 and "Mapped by 1 worker: 4 prompts." in told.err


def test_bad_options_and_missing_clusters_are_refused(tmp_path, capsys, monkeypatch):
    for options, why in (
        ("--ray --ray-workers 0", "--ray-workers 0"),
        ("--ray --ray-cpus 0", "--ray-cpus 0"),
        ("--ray --ray-gpus 1.5", "--ray-gpus 1.5"),
        ("--ray --ray-gpus nan", "--ray-gpus nan"),
        ("--ray-workers 2", "add --ray"),
        ("--ray ray://head:10001", "HOST:PORT"),
        ("--ray --grid k=1,2 --rule vllm-thinking", "each variant by itself"),
        ("--ray --wall-clock", "--resume"),
        ("--ray --target /nowhere", "no folder or file /nowhere"),
    ):
        assert cli.main(["sweep", "--out", str(tmp_path / "ray"), *options.split()]) == 2
        assert why in capsys.readouterr().err and not list(tmp_path.iterdir())
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests leave it so or not
    for address in ("127.0.0.1:9", "127.0.0.1:99999", ":"):
        with pytest.raises(SettingError, match="or joined"), joined_cluster(address):
            pass
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else find(name, *more))
    assert cli.main(["sweep", "--out", str(tmp_path / "ray"), "--ray"]) == 2
    assert "pip install -r requirements-ray.txt" in capsys.readouterr().err
    with pytest.raises(ModelError, match="not installed"), joined_cluster("auto"):
        pass
    assert not list(tmp_path.iterdir())
