"""Prints the crates that are linked into shipped programs, with their licences and the licences'
texts.

    packaging/crates.py TARGET PACKAGE…

Licences such as MIT require that their text is distributed with programs. Only normal dependencies
count: crates for building or testing are not in a program.
"""

import json
import subprocess
import sys
from pathlib import Path

TEXTS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def linked(metadata, names):
    """Returns the packages with these names and all packages that they link."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found = {}
    ahead = [key for key, package in packages.items() if package["name"] in names]
    while ahead:
        key = ahead.pop()
        if key in found:
            continue
        found[key] = packages[key]
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return found.values()


def texts(package):
    """Returns the texts of the licence files beside a crate's manifest."""
    folder = Path(package["manifest_path"]).parent
    files = [path for path in sorted(folder.iterdir()) if path.name.upper().startswith(TEXTS) and path.is_file()]
    return [path.read_text(errors="replace").strip() for path in files]


def main():
    target, *names = sys.argv[1:]
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    foreign = [package for package in linked(metadata, names) if package["source"]]
    by_text = {}
    for package in sorted(foreign, key=lambda package: (package["name"], package["version"])):
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see below'}")
        for text in texts(package):
            by_text.setdefault(text, []).append(name)
    for text, names in by_text.items():
        print(f"\n{'=' * 100}\n{', '.join(names)}:\n\n{text}")


main()
