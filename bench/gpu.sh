#!/bin/bash
# On the lent GPU machine, in the root of the code: bash bench/gpu.sh keep|1|2|3. Folders that `python -m bench.gpu` makes are carried there.
#   1   carry .gpu-1      generation; packed gradients, exact and at SmolLM2's size            (about 300 s)
#   2   carry .gpu-2      SmolLM2: the one loop in scouts; a live team and credit side by side (about 350 s; .gpu-1 came by a call before)
#   3   carry .peers-gpu  packed updates against TRL; the wide model; compiled generation      (about 300 s)
# Each step has a limit of its own, and what fails says so and the others go on. Lines of JSON are under $OUT, and `stages.jsonl` says how long each took.
cd "$(dirname "$0")/.." || exit 1
HELD=${HELD:-/root/podium-lease}; mkdir -p "$HELD/site"; export OUT=${OUT:-out}; mkdir -p "$OUT"
export PYTHONPATH=$HELD/site PODIUM_CACHE=$HELD/cache PYTHONUNBUFFERED=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
cat .gpu-*/COMMIT .peers-gpu/COMMIT 2>/dev/null | tail -1 > COMMIT
for wheel in .gpu-*/*.whl; do [ -f "$wheel" ] && [ ! -f "$HELD/$(basename "$wheel")" ] && python3 -m zipfile -e "$wheel" "$HELD/site" && touch "$HELD/$(basename "$wheel")"; done
for part in .gpu-*/model.?; do [ -f "$part" ] && cp "$part" "$HELD/"; done

step() {  # name, limit in seconds, command...
  local name=$1 limit=$2 start=$SECONDS; shift 2
  echo "== $name, at most $limit s"
  timeout -k 5 "$limit" "$@" 2>&1 | tee -a "$OUT/log" | tail -c 2500; local rc=${PIPESTATUS[0]}
  echo "{\"id\": \"stage $name\", \"rc\": $rc, \"seconds\": $((SECONDS - start))}" | tee -a "$OUT/stages.jsonl"
}

model() {  # the model out of its two parts, converted once
  if [ ! -f "$HELD/model.whl" ]; then
    [ -f "$HELD/model.1" ] && [ -f "$HELD/model.2" ] || { echo "the model is not whole: carry .gpu-1 and run 'bash bench/gpu.sh keep', then this again"; exit 1; }
    cat "$HELD/model.1" "$HELD/model.2" > "$HELD/model.whl" && python3 -m zipfile -e "$HELD/model.whl" "$HELD/site"
  fi
  step convert 120 python3 -c "from podium.engine.models import load; print(load('smollm2').size)"
}

case $1 in
keep) ls -la "$HELD" ;;
1)
  step generate 330 python3 -m bench.lm_generate --gpu --only ours generate exact batching
  step packed 200 python3 bench/lm_packed.py --gpu --only exact smol ;;
2)
  model
  step loop 200 python3 -m bench.lm_loop --gpu
  step live 270 python3 -m bench.lm_results live --seeds "${SEEDS:-3}" --seconds 105 --judged 1000 --beside 0 --together 3 --memory .1 &
  step credit 270 python3 -m bench.lm_results credit --seeds "${SEEDS:-3}" --seconds 60 --together 6 --memory .09
  wait ;;
3)
  step trl 120 python3 bench/lm_packed.py --gpu --only trl
  step wide 160 python3 bench/lm_packed.py --gpu --only wide
  step compiled 250 python3 -m bench.lm_generate --gpu --only ours compiled static generate ;;
*) echo "keep, 1, 2 or 3"; exit 1 ;;
esac
ls -la "$OUT"
