#!/usr/bin/env bash
# Everything that wants a GPU, one command: the tests that are skipped without one, then what things cost there.
#
#   benchmarks/gpu.sh [FOLDER]           figures and what was printed go there (benchmarks/results)
#   PYTHON=python3 SHAPES="llama-1b" benchmarks/gpu.sh /tmp/gpu
#
# It needs torch with CUDA, transformers, numpy, pyarrow, tqdm, urllib3, pytest and hypothesis, and no Streamlit. On an
# H200 the figures take six minutes and the tests, which come last, some five. What fails does not keep the rest from
# being measured.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-benchmarks/results}
python=${PYTHON:-python3}
shapes=${SHAPES-llama-1b llama-8b}
export PYTHONPATH="$PWD" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1 TQDM_DISABLE=1
mkdir -p "$out"
failed=0
run() {  # NAME COMMAND...
  local name=$1
  shift
  echo "== $name: $*"
  "$@" 2>&1 | tee "$out/$name.txt" || { failed=1; echo "== $name failed"; }
}
for dtype in float32 bfloat16; do
  run "overhead-cuda-built-in-$dtype" "$python" benchmarks/overhead.py --device cuda --dtype "$dtype" --repeats 1 \
    --json "$out/overhead-cuda-built-in-$dtype.json"
done
run decode-cuda-built-in "$python" benchmarks/decode.py --device cuda --dtype float32 --repeats 1 \
  --json "$out/decode-cuda-built-in.json"
run batch-cuda-built-in "$python" benchmarks/batch.py --device cuda --dtype float32 --repeats 2 \
  --json "$out/batch-cuda-built-in.json"
for shape in $shapes; do
  run "passes-cuda-$shape" "$python" benchmarks/passes.py --device cuda --shapes "$shape" \
    --json "$out/passes-cuda-$shape.json"
  run "overhead-cuda-$shape" "$python" benchmarks/overhead.py --device cuda --shapes "$shape" --repeats 1 \
    --new-tokens 64 --json "$out/overhead-cuda-$shape.json"
  run "batch-cuda-$shape" "$python" benchmarks/batch.py --device cuda --shapes "$shape" --sizes 1 8 --repeats 1 \
    --new-tokens 32 --json "$out/batch-cuda-$shape.json"
done
beside=$("$python" -c 'import xdist' 2> /dev/null && echo '--numprocesses 8')
# shellcheck disable=SC2086
run tests-cuda "$python" -m pytest -q -W default --durations 8 $beside tests/test_cuda.py tests/test_networks.py
exit $failed
