#!/usr/bin/env bash
# Does by hand what `pillion run` does: sets the library and the class, and nothing else.
#
#   examples/3-by-hand/preload.sh COMMAND…
#
# PILLION_CLASS chooses the class (default: best-effort). PILLION_BIN names the folder of the
# library (default: target/release of this repository; an installation has it in /usr/lib/pillion).
set -euo pipefail
library=${PILLION_BIN:-$(cd "$(dirname "$0")/../../target/release" && pwd)}/libpillion.so
export LD_PRELOAD=$library
export PILLION_CLASS=${PILLION_CLASS:-best-effort}
exec "$@"
