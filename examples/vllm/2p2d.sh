#!/bin/bash
# Two prefill and two decode engines: 2p2d.sh MODEL [PROFILE]; see serve.sh.
if (($# < 1)); then echo "usage: 2p2d.sh MODEL [PROFILE]"; exit 2; fi
exec "$(dirname "$0")/serve.sh" 2 2 "$@"
