#!/bin/bash
# Two prefill and two decode engines: 2p2d.sh MODEL [PROFILE]; see serve.sh.
exec "$(dirname "$0")/serve.sh" 2 2 "$@"
