# Sourced by ./dev: the Debian 12 packages that the build and the checks need.

readonly DEBIAN_PACKAGES=(
  cmake ninja-build g++ ccache pkg-config
  clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev
  libhwy-dev libzstd-dev libxxhash-dev nlohmann-json3-dev libcli11-dev zlib1g-dev
  libexpected-dev libeigen3-dev libasio-dev libssl-dev libcpp-httplib-dev prometheus-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev liblz4-dev
  python3-venv python3-dev iproute2 procps
)

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${DEBIAN_PACKAGES[@]}" \
    2>/dev/null | sed -n 's/^ii //p' || true)
  comm -23 <(printf '%s\n' "${DEBIAN_PACKAGES[@]}" | sort) <(sort <<<"$installed")
}

on_debian_12() {
  [[ -r /etc/os-release ]] && (. /etc/os-release && [[ ${ID:-} == debian && ${VERSION_ID:-} == 12 ]])
}

# Other distributions have the same libraries under other names: dev only checks for Debian's.
ensure_packages() {
  if [[ -n ${KVSERVE_SKIP_PACKAGES:-} ]]; then return; fi
  if ! command -v dpkg-query >/dev/null || ! on_debian_12; then
    printf 'dev installs packages on Debian 12 only. Install what corresponds to these,\n'
    printf 'then set KVSERVE_SKIP_PACKAGES=1:\n  %s\n' "${DEBIAN_PACKAGES[*]}"
    exit 1
  fi
  local missing
  missing=$(missing_packages)
  if [[ -z $missing ]]; then return; fi
  printf 'missing Debian packages: %s\n' "$(tr '\n' ' ' <<<"$missing")"
  if ((EUID != 0)); then
    printf 'as root, run:\n  apt-get install --no-install-recommends %s\n' "$(tr '\n' ' ' <<<"$missing")"
    exit 1
  fi
  step 'package lists' quietly apt-update apt-get update
  # shellcheck disable=SC2086
  step 'install packages' quietly apt-install env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends $missing
}
