"""The software bill of materials of the dashboard: which JavaScript the wheel has inside, as CycloneDX (PEP 770).

Made from package-lock.json alone, so that two builds of the same sources give the same bytes.
"""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "dashboard" / "package-lock.json"
FILE = Path("build") / "dashboard.cdx.json"
"""Where it is written for the build of a wheel, under the project's folder."""
NAMESPACE = uuid.UUID("6f0c1c1e-7f0e-5c57-9a55-6d8b4a2d1f10")


def write() -> str:
    """Write the document and return its path as the build wants it: relative to the project."""
    path = ROOT / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(document(LOCK.read_text()))
    return FILE.as_posix()


def document(lock: str) -> str:
    """The bill of materials of a package-lock.json: every package that is not for development only."""
    packages = json.loads(lock)["packages"]
    components = [
        _component(path, package) for path, package in sorted(packages.items()) if path and not package.get("dev")
    ]
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, lock)}",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": "tasklib-dashboard",
                    "name": "tasklib-dashboard",
                    "licenses": [{"license": {"id": packages[""]["license"]}}],
                }
            },
            "components": components,
            "dependencies": [
                {"ref": "tasklib-dashboard", "dependsOn": [component["bom-ref"] for component in components]}
            ],
        },
        indent=2,
    )


def _component(path: str, package: dict[str, Any]) -> dict[str, Any]:
    name = path.rpartition("node_modules/")[2]
    address = f"pkg:npm/{quote(name, safe='/')}@{package['version']}"
    component: dict[str, Any] = {"type": "library", "bom-ref": address, "name": name, "version": package["version"]}
    if license_ := package.get("license"):
        component["licenses"] = [{"license": {"id": license_}}]
    component["purl"] = address
    if integrity := package.get("integrity"):
        algorithm, _, digest = integrity.partition("-")
        kind = {"sha512": "SHA-512", "sha256": "SHA-256", "sha1": "SHA-1"}[algorithm]
        component["hashes"] = [{"alg": kind, "content": base64.b64decode(digest).hex()}]
    return component
