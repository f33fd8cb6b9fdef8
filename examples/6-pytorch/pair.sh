#!/usr/bin/env bash
# Serves and trains on one GPU at the same time: serving is high-priority, training best-effort.
#
#   examples/6-pytorch/pair.sh PYTHON [REQUESTS]
#
# PYTHON is an interpreter that has PyTorch. PILLION_BIN is the folder of the programs (default:
# target/release of this repository).
set -euo pipefail
if [ $# -eq 0 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
pillion=${PILLION_BIN:-$here/../../target/release}/pillion
started=$(mktemp)
"$pillion" run --class best-effort -- "$1" "$here/train.py" >"$started" &
training=$!
trap 'kill $training 2>/dev/null || true; rm -f "$started"' EXIT
until grep -q training "$started"; do
  kill -0 $training 2>/dev/null || { echo 'the training process exited before its first step' >&2; exit 1; }
  sleep 0.1
done
"$pillion" run --class high-priority -- "$1" "$here/serve.py" "${2:-200}"
kill $training
wait $training
