# Sourced by ./dev: the wheel, and the tests of the Python package against it as it is installed.

readonly WHEEL_VENV=build/wheel-venv

# The wheel into build/wheel, from what git would give a clone, as `pip install .` builds it.
build_wheel() {
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(--config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  rm -rf build/wheel
  CMAKE_BUILD_PARALLEL_LEVEL="$CORES" "$VENV_PYTHON" -m pip wheel --disable-pip-version-check \
    --no-deps --verbose --wheel-dir build/wheel --config-settings=build-dir=build/wheel-cmake "${launcher[@]}" .
}

# A fresh environment with the wheel, numpy and nothing else.
install_wheel() {
  rm -rf "$WHEEL_VENV"
  "$BASE_PYTHON" -m venv "$WHEEL_VENV"
  "$WHEEL_VENV/bin/python" -m pip install --disable-pip-version-check build/wheel/kvserve-*.whl
}

# Away from the sources, so that nothing but the wheel is imported.
test_wheel() {
  local python=$PWD/$WHEEL_VENV/bin/python tests=$PWD/python/tests
  (cd build/wheel && "$python" -B -m unittest discover -q -s "$tests" -t "$tests" -p '*_test.py')
}

wheel_size() { du -h --apparent-size build/wheel/kvserve-*.whl | sed 's/^/    /'; }
