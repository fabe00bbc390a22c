#!/usr/bin/env bash
# Run the fast tests on an installed wheel: try_wheel_quickly.sh FOLDER, which contains tests/. Takes a minute or two. Run it
# outside the checkout, in the environment with the wheel.
set -euo pipefail
folder=$1
python - <<'CHECK'
import pathlib
import widemargin
home = pathlib.Path(widemargin.__file__).parent
assert "site-packages" in home.parts, f"widemargin is imported from {home}, not from the installed wheel"
assert not list(home.glob("_core_testing*")), "the wheel contains the hooks for tests"
CHECK
widemargin --version
# Kernels against NumPy, model folders, metrics; then the examples of the estimators, one fit per family.
python -m pytest -q -p no:cacheprovider -c "$folder/pyproject.toml" --rootdir "$folder" \
  "$folder"/tests/{reference,model_io,metrics,labels,datasets,test_projections.py}
python -m pytest -q -p no:cacheprovider -c "$folder/pyproject.toml" --rootdir "$folder" --pyargs widemargin.estimators
