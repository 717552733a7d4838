# Sourced by ./dev: tests, sanitizers, fuzzing and style.

run_tests() {
  local preset=$1
  shift
  step "tests $preset" ctest --preset "$preset" --progress "$@"
}

# GCC 12's thread sanitizer needs the classic address layout; without the right to ask for it the
# tests run as they are.
without_aslr() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    setarch "$(uname -m)" -R "$@"
  else
    "$@"
  fi
}

# One line: executions, executions per second, covered edges.
fuzz_figures() {
  awk -v name="$1" '
    /stat::number_of_executed_units/ { executions = $2 }
    /stat::average_exec_per_sec/ { rate = $2 }
    match($0, /cov: [0-9]+/) { edges = substr($0, RSTART + 5, RLENGTH - 5) }
    END { printf "%s: %d executions, %d/s, %d edges\n", name, executions, rate, edges }' "$2"
}

# Without entropic scheduling, whose bookkeeping takes a third of the time of these small inputs.
fuzz_all() {
  local seconds=$1 target name
  shopt -s nullglob
  local targets=(build/fuzz/bin/*_fuzzer)
  if ((${#targets[@]} == 0)); then die 'no fuzz targets were built'; fi
  for target in "${targets[@]}"; do
    name=$(basename "$target")
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/findings"
    local corpora=("build/fuzz/corpus/$name")
    if [[ -d fuzz/corpus/$name ]]; then corpora+=("fuzz/corpus/$name"); fi
    step "fuzz $name for $seconds s" quietly "fuzz-$name" "$target" -max_total_time="$seconds" \
      -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -entropic=0 \
      -artifact_prefix="build/fuzz/findings/$name-" "${corpora[@]}"
    fuzz_figures "$name" "$LOGS/fuzz-$name.log"
  done
}

sources() { git ls-files --cached --others --exclude-standard -- '*.cc' '*.h' '*.cu'; }

check_format() { sources | xargs -r clang-format-14 --dry-run --Werror; }

python_tests() { PYTHONPATH=bench "$VENV_PYTHON" -m unittest -q demo.demo_test history_test; }

# All checks run, so that one round shows everything.
lint_all() {
  local failed=0
  step 'include law: self-test' "$BASE_PYTHON" scripts/include_law.py --self-test || failed=1
  step 'include law' "$BASE_PYTHON" scripts/include_law.py || failed=1
  step 'file lengths' "$BASE_PYTHON" scripts/file_lengths.py || failed=1
  step 'clang-format' check_format || failed=1
  step 'clang-tidy' "$BASE_PYTHON" scripts/tidy.py build/release || failed=1
  return "$failed"
}
