# Sourced by ./dev: the virtual environment under build/venv. A stamp per requirements file makes
# the second run free.

readonly VENV=build/venv
readonly VENV_PYTHON=$VENV/bin/python
# Debian's own interpreter: python3-venv and python3-dev belong to it.
readonly BASE_PYTHON=${KVSERVE_PYTHON:-/usr/bin/python3}

ensure_venv() {
  if [[ -x $VENV_PYTHON ]]; then return; fi
  mkdir -p build
  step 'virtual environment build/venv' "$BASE_PYTHON" -m venv "$VENV"
}

# ensure_requirements NAME: scripts/requirements-NAME.txt into the venv.
ensure_requirements() {
  local file=scripts/requirements-$1.txt stamp=$VENV/.installed-$1
  ensure_venv
  if cmp --silent "$file" "$stamp"; then return; fi
  step "Python packages ($1)${2:+: $2}" quietly "pip-$1" env CMAKE_ARGS=-DLLAVA_BUILD=OFF \
    CMAKE_BUILD_PARALLEL_LEVEL="$CORES" "$VENV_PYTHON" -m pip install --disable-pip-version-check \
    --verbose -r "$file"
  cp "$file" "$stamp"
}

# libllama for CMake; build/site-packages is where the presets look for it.
ensure_engine() {
  ensure_requirements engine 'builds llama.cpp, about 3 minutes on 2 cores'
  if [[ ! -e build/site-packages ]]; then
    ln -sfn "$(cd "$VENV" && echo lib/python3*/site-packages | sed "s|^|venv/|")" build/site-packages
  fi
}

# ensure_torch_venv FOLDER NAME REQUIREMENTS [command...]: an environment apart from everything else
# whose torch finds no CUDA; the command finishes it.
ensure_torch_venv() {
  local folder=$1 name=$2 file=$3 stamp=$1/.installed
  if cmp --silent "$file" "$stamp"; then return; fi
  mkdir -p build
  step "virtual environment $folder" "$BASE_PYTHON" -m venv "$folder"
  step "Python packages ($name)" quietly "pip-$name" "$folder/bin/python" -m pip install \
    --disable-pip-version-check --no-deps -r "$file"
  step 'stand-ins for CUDA' "$folder/bin/python" -B scripts/cuda_stand_ins.py \
    "$folder"/lib/python3*/site-packages
  "${@:4}"
  cp "$file" "$stamp"
}

readonly PEERS=build/peers-venv

# The peers of bench/peers.
ensure_peers() { ensure_torch_venv "$PEERS" peers bench/peers/requirements.txt; }
