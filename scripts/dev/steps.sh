# Sourced by ./dev: every step says what it does and how long it took.

readonly LOGS=build/log
readonly CORES=$(nproc)

# step "what" command...: runs the command in this shell, prints its duration and returns its status.
# `set -e` is off inside the command: a function given here ends with what can fail, or says die.
step() {
  local what=$1 started=$SECONDS status=0
  shift
  printf '==> %s\n' "$what"
  "$@" || status=$?
  if ((status == 0)); then
    printf '    %s: %d s\n' "$what" $((SECONDS - started))
  else
    printf '    %s: FAILED (status %d) after %d s\n' "$what" "$status" $((SECONDS - started))
  fi
  return "$status"
}

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# quietly LOG command...: output goes to build/log/LOG.log, of which the latest "[n/m]" counter (or
# line) is shown while it runs, and the last lines if it fails.
quietly() {
  local log=$LOGS/$1.log
  shift
  mkdir -p "$LOGS"
  "$@" >"$log" 2>&1 &
  local job=$! shown='' now
  while kill -0 "$job" 2>/dev/null; do
    now=$(grep -oE '\[[0-9]+/[0-9]+\]' "$log" 2>/dev/null | tail -n 1 || true)
    if [[ -n $now && $now != "$shown" ]] && { [[ -t 1 ]] || ((SECONDS % 15 == 0)); }; then
      if [[ -t 1 ]]; then printf '\r    %s ' "$now"; else printf '    %s\n' "$now"; fi
      shown=$now
    fi
    sleep 1
  done
  if [[ -t 1 && -n $shown ]]; then printf '\r'; fi
  if ! wait "$job"; then
    tail -n 40 "$log" >&2
    die "failed; the whole output is in $log"
  fi
}

# Background jobs of ./dev (downloads) end with it, however it ends.
end_jobs() {
  local jobs_left
  jobs_left=$(jobs -p)
  if [[ -n $jobs_left ]]; then kill $jobs_left 2>/dev/null || true; fi
}
trap end_jobs EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
