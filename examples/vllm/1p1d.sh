#!/bin/bash
# One prefill and one decode engine: 1p1d.sh MODEL [PROFILE]; see serve.sh.
exec "$(dirname "$0")/serve.sh" 1 1 "$@"
