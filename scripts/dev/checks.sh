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

sources() { git ls-files --cached --others --exclude-standard -- '*.cc' '*.c' '*.h' '*.cu'; }

check_format() { sources | xargs -r clang-format-14 --dry-run --Werror; }

python_tests() {
  PYTHONPATH=bench "$VENV_PYTHON" -m unittest -q demo.demo_test history_test break_even_test vllm_pd.vllm_pd_test
}

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
