"""Builds the dashboard into the package, so that a wheel carries it ready-made and nobody who installs needs Node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools import dashboard, sbom  # the folder has to be on the path first


class DashboardHook(BuildHookInterface[Any]):
    """Runs before every wheel, editable ones too, and before every sdist, which then needs no Node to be installed."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A Node from PyPI where the machine has none that is new enough."""
        return [] if dashboard.machine_has_node() else [dashboard.NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Leave the built files where the package expects them."""
        if dashboard.SOURCES.is_dir():
            dashboard.build(quiet=True)
            if self.target_name == "wheel":
                build_data["sbom_files"].append(sbom.write())
