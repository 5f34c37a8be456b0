"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
for requirement in [*project["dependencies"], *project["optional-dependencies"]["pandas"]]:
    if ">=" not in requirement or "," in requirement:
        raise SystemExit(f"{requirement}: write it as name>=version")
    print(requirement.replace(">=", "=="))
