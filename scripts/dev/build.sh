# Sourced by ./dev: configure and build a preset in build/<preset>.

readonly KVSERVE=build/release/bin/kvserve

configure() {
  local launcher=()
  if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  quietly "configure-$1" cmake --preset "$1" "${launcher[@]}" \
    -DKVSERVE_PYTHON="$PWD/$VENV_PYTHON"
}

# build_preset PRESET [target...]
build_preset() {
  local preset=$1
  shift
  if [[ $preset != fuzz* ]]; then ensure_engine; fi
  step "configure $preset" configure "$preset"
  step "build $preset" cmake --build "build/$preset" --parallel "$CORES" ${1:+--target "$@"}
}
