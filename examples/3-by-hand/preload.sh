#!/usr/bin/env bash
# What `pillion run` does, by hand: the library, the class, and nothing else.
#
#   examples/3-by-hand/preload.sh COMMAND…
#
# PILLION_CLASS chooses the class (default: best-effort), PILLION_BIN the folder of the library
# (default: target/release beside this script; an installation has it in /usr/lib/pillion).
set -euo pipefail
library=${PILLION_BIN:-$(cd "$(dirname "$0")/../../target/release" && pwd)}/libpillion.so
export LD_PRELOAD=$library
export PILLION_CLASS=${PILLION_CLASS:-best-effort}
exec "$@"
