"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip."""

import tomllib
from pathlib import Path

EXTRAS = ("pandas", "delta", "iceberg")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]]
for requirement in [*project["dependencies"], *extras]:
    if ">=" not in requirement or "," in requirement:
        raise SystemExit(f"{requirement}: write it as name>=version")
    print(requirement.replace(">=", "=="))
