#!/bin/bash
# One prefill and one decode engine: 1p1d.sh MODEL [PROFILE]; see serve.sh.
if (($# < 1)); then echo "usage: 1p1d.sh MODEL [PROFILE]"; exit 2; fi
exec "$(dirname "$0")/serve.sh" 1 1 "$@"
