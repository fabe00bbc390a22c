#!/usr/bin/env bash
# Install a wheel into an empty virtual environment outside the checkout and run the tests of the source distribution on
# it, without its sources: try_wheel.sh WHEEL SDIST [quick | pytest arguments, default: tests].
set -euo pipefail
wheel=$(realpath "$1") sdist=$(realpath "$2") python=$(command -v "${PYTHON:-python3}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
shift 2
[ $# -gt 0 ] || set -- tests
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
tar -xzf "$sdist" --strip-components=1
rm -rf src  # only the wheel can be imported now
"$python" -m venv empty
extras=test
[ "$1" = quick ] && extras=cli
empty/bin/python -m pip install --quiet --disable-pip-version-check "$wheel[$extras]"
export PATH="$here/empty/bin:$PATH"
if [ "$1" = quick ]; then
  python -m pip install --quiet --disable-pip-version-check pytest hypothesis pandas networkx cvxpy clarabel
  bash tools/try_wheel_quickly.sh "$here"
else
  python -m pytest -q -p no:cacheprovider "$@"
fi
